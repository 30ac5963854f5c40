"""PyTorch's scaled_dot_product_attention as a peer. With PyTorch 2, such as Debian 13's
python3-torch, and libopenblas0-pthread, run in the root of the repository:

    benchrun sweep --peer 'torch=python3 peers/torch/peer.py' --kernel flash,torch ...

Its float32 products are computed by the BLAS that it was linked with, or by one that LD_PRELOAD
names. The record of a run has the name of that BLAS.

Package peers documents the requests and answers.
"""

import ctypes
import json
import os
import sys
import time

# PyTorch's threads share the heads. OpenBLAS would start one more thread for each CPU, whatever
# number of threads is set, and MKL might.
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"

import torch
from torch.nn.functional import scaled_dot_product_attention


aten = torch.ops.aten


class Peer:
    send = []  # the tensors that follow the answer

    def about(self):
        about = f"PyTorch {torch.__version__}, scaled_dot_product_attention for {torch.backends.cpu.get_cpu_capability()}, products of {blas()}"
        return {"about": about, "backward": True}

    def check(self, problem, threads):
        return {"refused": refusal(**problem)}

    def plan(self, problem, threads):
        torch.set_num_threads(threads)
        self.grads = False
        self.__dict__.update(problem)

    def load(self):
        # PyTorch's fast kernel does not support groups, so each query head gets its own keys.
        group = self.heads_q // self.heads_kv
        self.q = self.read(self.heads_q, self.seq_q, self.dim)
        self.k = self.read(self.heads_kv, self.seq_kv, self.dim).repeat_interleave(group, 1)
        self.v = self.read(self.heads_kv, self.seq_kv, self.dim_v).repeat_interleave(group, 1)

    def load_grads(self):
        self.given = self.read(self.heads_q, self.seq_q, self.dim_v)

    def read(self, heads, rows, columns):
        data = bytearray(4 * self.batch * heads * rows * columns)
        if sys.stdin.buffer.readinto(data) != len(data):
            raise EOFError("a tensor ends early")
        return torch.frombuffer(data, dtype=torch.float32).view(self.batch, heads, rows, columns)

    def run(self, calls, **which):
        call = self.backward if which.get("pass") == "backward" else self.forward
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        for _ in range(calls):
            call()
        return {"wall_ns": time.perf_counter_ns() - wall, "cpu_ns": time.process_time_ns() - cpu}

    # With gradients, forward calls the kernel that scaled_dot_product_attention chooses, because
    # that kernel also returns LSE.
    def forward(self):
        causal = self.mask != "full"
        if self.grads:
            self.out, self.lse = aten._scaled_dot_product_flash_attention_for_cpu(self.q, self.k, self.v, is_causal=causal, scale=self.scale)
        else:
            self.out = scaled_dot_product_attention(self.q, self.k, self.v, is_causal=causal, scale=self.scale)

    def backward(self):
        self.results = aten._scaled_dot_product_flash_attention_for_cpu_backward(
            self.given, self.q, self.k, self.v, self.out, self.lse, 0.0, self.mask != "full", scale=self.scale
        )

    def store(self):
        self.send = [self.out, self.lse] if self.grads else [self.out]

    def store_grads(self):
        q, k, v = self.results
        heads = (self.batch, self.heads_kv, self.heads_q // self.heads_kv, self.seq_kv, -1)
        self.send = [q, k.contiguous().view(heads).sum(2), v.contiguous().view(heads).sum(2)]


class Symbol(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("address", ctypes.c_void_p)]


def blas():
    loaded, symbol = ctypes.CDLL(None), Symbol()
    own = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
    for library in (loaded, own):  # a BLAS that is loaded already takes precedence
        if hasattr(library, "sgemm_"):
            loaded.dladdr(ctypes.cast(library.sgemm_, ctypes.c_void_p), ctypes.byref(symbol))
            return os.path.realpath(symbol.file.decode())
    return "its own"


def refusal(mask, seq_q, seq_kv, grads=False, **sizes):
    if grads and sizes["dim"] != sizes["dim_v"]:
        return "its fast kernel wants keys and values of one size"
    if 0 in (seq_q, seq_kv, *sizes.values()):
        return "something has no size"
    if mask in ("full", "causal-topleft") or mask == "causal" and seq_q == seq_kv:
        return ""
    return f"no mask {mask} of {seq_q} queries and {seq_kv} keys"


def main():
    peer, out = Peer(), sys.stdout.buffer
    for line in sys.stdin.buffer:
        request = json.loads(line)
        id, do = request.pop("id"), request.pop("do")
        try:
            answer = getattr(peer, do)(**request) or {}
        except Exception as e:
            answer = {"error": str(e)}
        out.write(json.dumps({"id": id, **answer}).encode() + b"\n")
        for tensor in peer.send:
            tensor = tensor.contiguous()
            out.write(ctypes.string_at(tensor.data_ptr(), tensor.nbytes))
        peer.send = []
        out.flush()


with torch.inference_mode():
    main()
