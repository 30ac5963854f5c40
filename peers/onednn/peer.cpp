// oneDNN as a peer: the graph of scaled dot-product attention, which oneDNN fuses where it can.
// With oneDNN 3 (Debian 13's libdnnl-dev), run in this folder:
//
//   g++ -O2 -fopenmp -o peer peer.cpp -ldnnl
//
// and in the root of the repository:
//
//   benchrun sweep --peer onednn=peers/onednn/peer --kernel flash,onednn ...
//
// Package peers documents the requests and answers.
#include <omp.h>

#include <cmath>
#include <memory>
#include <oneapi/dnnl/dnnl_graph.hpp>

#include "../peer.hpp"

using namespace dnnl::graph;

struct OneDNN : Peer {
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream{engine};
    std::unique_ptr<compiled_partition> attention;
    std::vector<tensor> inputs, outputs;
    std::vector<float> mask;
    float scale;

    std::string about() override {
        const dnnl_version_t *v = dnnl_version();
        return "oneDNN " + std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch) + ", graph of attention";
    }

    std::string refusal(const Problem &p) override {
        if (p.heads_q != p.heads_kv) return "want as many key heads as query heads";
        if (p.mask == "full" || (p.causal() && p.visible(0) > 0)) return "";
        return "no mask " + p.mask;
    }

    void plan(int threads) override {
        omp_set_num_threads(threads);
        using type = logical_tensor::data_type;
        size_t names = 0;
        auto array = [&](logical_tensor::dims dims) { return logical_tensor(names++, type::f32, dims, logical_tensor::layout_type::strided); };
        auto between = [&] { return logical_tensor(names++, type::f32); };
        auto query = array({p.batch, p.heads_q, p.seq_q, p.dim}), key = array({p.batch, p.heads_q, p.seq_kv, p.dim}),
             value = array({p.batch, p.heads_q, p.seq_kv, p.dim_v}), result = array({p.batch, p.heads_q, p.seq_q, p.dim_v}), factor = array({1});
        auto products = between(), scores = between(), weights = between();

        dnnl::graph::graph whole(dnnl::engine::kind::cpu);
        op score(0, op::kind::MatMul, {query, key}, {products}, "score");
        score.set_attr<bool>(op::attr::transpose_b, true);
        op scaling(1, op::kind::Multiply, {products, factor}, {scores}, "scaling");
        whole.add_op(score);
        whole.add_op(scaling);
        scale = p.scale;
        std::vector<logical_tensor> in = {query, key, factor};
        std::vector<void *> data = {q.data(), k.data(), &scale};
        if (p.mask != "full") {
            auto hidden = array({1, 1, p.seq_q, p.seq_kv}), masked = between();
            whole.add_op(op(2, op::kind::Add, {scores, hidden}, {masked}, "masking"));
            mask.assign(p.seq_q * p.seq_kv, 0);
            for (long i = 0; i < p.seq_q; i++)
                for (long j = p.visible(i); j < p.seq_kv; j++) mask[i * p.seq_kv + j] = -INFINITY;
            scores = masked;
            in.push_back(hidden);
            data.push_back(mask.data());
        }
        op softmax(3, op::kind::SoftMax, {scores}, {weights}, "softmax");
        softmax.set_attr<int64_t>(op::attr::axis, -1);
        whole.add_op(softmax);
        whole.add_op(op(4, op::kind::MatMul, {weights, value}, {result}, "mix"));
        in.push_back(value);
        data.push_back(v.data());
        whole.finalize();
        auto parts = whole.get_partitions();
        if (parts.size() != 1 || !parts[0].is_supported()) throw std::runtime_error("the graph falls into " + std::to_string(parts.size()) + " parts");
        attention = std::make_unique<compiled_partition>(parts[0].compile(in, {result}, engine));
        inputs.clear();
        for (size_t i = 0; i < in.size(); i++) inputs.emplace_back(in[i], engine, data[i]);
        outputs = {tensor(result, engine, out.data())};
    }

    void call() override {
        attention->execute(stream, inputs, outputs);
        stream.wait();
    }
};

int main() {
    OneDNN peer;
    return serve(peer);
}
