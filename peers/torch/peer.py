"""PyTorch's scaled_dot_product_attention as a peer. With PyTorch 2 (pip install torch, or Debian 13's python3-torch with libopenblas0-pthread):

    benchrun sweep --peer 'torch=python3 peers/torch/peer.py' --kernel flash,torch ...

What is asked of a peer stands in package peers.
"""

import ctypes
import json
import os
import signal
import sys
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # PyTorch's own threads share the heads among them; OpenBLAS would add one for each CPU, whatever they are told

import torch
from torch.nn.functional import scaled_dot_product_attention


class Peer:
    def about(self):
        return {"about": f"PyTorch {torch.__version__}, scaled_dot_product_attention for {torch.backends.cpu.get_cpu_capability()}"}

    def check(self, problem, threads):
        return {"refused": refusal(**problem)}

    def plan(self, problem, threads):
        torch.set_num_threads(threads)
        self.__dict__.update(problem)

    def load(self):
        group = self.heads_q // self.heads_kv  # it has a path for groups that its fast kernel does not take: here each query head has keys of its own
        self.q = self.read(self.heads_q, self.seq_q, self.dim)
        self.k = self.read(self.heads_kv, self.seq_kv, self.dim).repeat_interleave(group, 1)
        self.v = self.read(self.heads_kv, self.seq_kv, self.dim_v).repeat_interleave(group, 1)

    def read(self, heads, rows, columns):
        data = bytearray(4 * self.batch * heads * rows * columns)
        if sys.stdin.buffer.readinto(data) != len(data):
            raise EOFError("a tensor ends early")
        return torch.frombuffer(data, dtype=torch.float32).view(self.batch, heads, rows, columns)

    def run(self, calls):
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        for _ in range(calls):
            self.out = scaled_dot_product_attention(self.q, self.k, self.v, is_causal=self.mask != "full", scale=self.scale)
        return {"wall_ns": time.perf_counter_ns() - wall, "cpu_ns": time.process_time_ns() - cpu}

    def store(self):
        self.out = self.out.contiguous()


def refusal(mask, seq_q, seq_kv, **sizes):
    if 0 in (seq_q, seq_kv, *sizes.values()):
        return "something has no size"
    if mask in ("full", "causal-topleft") or mask == "causal" and seq_q == seq_kv:
        return ""
    return f"no mask {mask} of {seq_q} queries and {seq_kv} keys"


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    peer, out = Peer(), sys.stdout.buffer
    for line in sys.stdin.buffer:
        request = json.loads(line)
        do = request.pop("do")
        try:
            answer = getattr(peer, do)(**request) or {}
        except Exception as e:
            answer = {"error": str(e)}
        out.write(json.dumps(answer).encode() + b"\n")
        if do == "store" and not answer:
            out.write(ctypes.string_at(peer.out.data_ptr(), peer.out.nbytes))
        out.flush()


with torch.inference_mode():
    main()
