// ggml, the library of llama.cpp, as a peer: its fused attention on the CPU. With a built checkout
// of ggml at $GGML, run in this folder:
//
//   g++ -O2 -o peer peer.cpp -I$GGML/include -L$GGML/build/src \
//       -lggml -lggml-cpu -lggml-base -Wl,-rpath,$GGML/build/src
//
// and in the root of the repository:
//
//   benchrun sweep --peer ggml=peers/ggml/peer --kernel flash,ggml ...
//
// Package peers documents the requests and answers.
#include <ggml-cpu.h>
#include <ggml.h>

#include <cmath>
#include <cstring>

#include "../peer.hpp"

struct Ggml : Peer {
    ggml_context *context = nullptr;
    ggml_tensor *query, *key, *value, *result;
    ggml_cgraph *graph;
    ggml_cplan todo;
    std::vector<uint8_t> work;

    std::string about() override { return std::string("ggml ") + ggml_version() + ", flash_attn_ext"; }

    std::string refusal(const Problem &p) override {
        if (p.mask == "full" || (p.causal() && p.visible(0) > 0)) return "";
        return "no mask " + p.mask;
    }

    void plan(int threads) override {
        ggml_free(context);
        ggml_init_params with = {};
        with.mem_size = 4 * (q.size() + k.size() + v.size() + out.size()) + 2 * (p.seq_q + 64) * p.seq_kv + (64 << 20);
        context = ggml_init(with);
        if (!context) throw std::runtime_error("no memory");
        query = ggml_new_tensor_4d(context, GGML_TYPE_F32, p.dim, p.seq_q, p.heads_q, p.batch);
        key = ggml_new_tensor_4d(context, GGML_TYPE_F32, p.dim, p.seq_kv, p.heads_kv, p.batch);
        value = ggml_new_tensor_4d(context, GGML_TYPE_F32, p.dim_v, p.seq_kv, p.heads_kv, p.batch);
        ggml_tensor *mask = nullptr;
        if (p.mask != "full") {
            long rows = (p.seq_q + 63) / 64 * 64;  // ggml requires a multiple of 64
            mask = ggml_new_tensor_4d(context, GGML_TYPE_F16, p.seq_kv, rows, 1, 1);
            auto *to = (ggml_fp16_t *)mask->data;
            for (long i = 0; i < rows; i++)
                for (long j = 0; j < p.seq_kv; j++) *to++ = ggml_fp32_to_fp16(j < p.visible(i) ? 0 : -INFINITY);
        }
        result = ggml_flash_attn_ext(context, query, key, value, mask, p.scale, 0, 0);
        ggml_flash_attn_ext_set_prec(result, GGML_PREC_F32);
        graph = ggml_new_graph(context);
        ggml_build_forward_expand(graph, result);
        todo = ggml_graph_plan(graph, threads, nullptr);
        work.resize(todo.work_size);
        todo.work_data = work.data();
    }

    void load() override {
        std::memcpy(query->data, q.data(), 4 * q.size());
        std::memcpy(key->data, k.data(), 4 * k.size());
        std::memcpy(value->data, v.data(), 4 * v.size());
    }

    void call() override {
        if (ggml_graph_compute(graph, &todo) != GGML_STATUS_SUCCESS) throw std::runtime_error("the graph failed");
    }

    // ggml's rows are [batch][row][head][column].
    void store() override {
        auto *from = (const float *)result->data;
        for (long b = 0; b < p.batch; b++)
            for (long i = 0; i < p.seq_q; i++)
                for (long h = 0; h < p.heads_q; h++, from += p.dim_v)
                    std::memcpy(&out[((b * p.heads_q + h) * p.seq_q + i) * p.dim_v], from, 4 * p.dim_v);
    }
};

int main() {
    Ggml peer;
    return serve(peer);
}
