// ggml, the library of llama.cpp, as a peer: on the CPU its fused attention, its gated delta rule,
// and its state-space scan for gates without the delta rule. With a built checkout of ggml at $GGML,
// run in this folder:
//
//   g++ -O2 -o peer peer.cpp -I$GGML/include -L$GGML/build/src \
//       -lggml -lggml-cpu -lggml-base -Wl,-rpath,$GGML/build/src
//
// and in the root of the repository:
//
//   benchrun sweep --peer ggml=peers/ggml/peer --kernel flash,ggml ...
//   benchrun sweep --peer ggml=peers/ggml/peer --kernel linear,ggml --rule gated-delta,ssd ...
//
// ggml has its linear operators work on rows [row][head][column] and on a transposed state. They are
// turned, and rows of Q and K normalised, before the clock runs.
//
// Package peers documents the requests and answers.
#include <ggml-cpu.h>
#include <ggml.h>

#include <cmath>
#include <cstring>

#include "../peer.hpp"

struct Ggml : Peer {
    ggml_context *context = nullptr;
    ggml_tensor *query, *key, *value, *gate, *betas, *state, *result;
    ggml_cgraph *graph;
    ggml_cplan todo;
    std::vector<uint8_t> work;

    std::string about() override { return std::string("ggml ") + ggml_version() + ", flash_attn_ext, gated_delta_net, ssm_scan"; }
    bool linear() override { return true; }

    std::string refusal(const Problem &p) override {
        if (!p.feature.empty()) return refusal_of_rule(p);
        if (p.mask == "full" || (p.causal() && p.visible(0) > 0)) return "";
        return "no mask " + p.mask;
    }

    // refusal_of_rule returns why a linear problem is not computed, or "".
    static std::string refusal_of_rule(const Problem &p) {
        if (!p.unnormalised || p.feature != "identity") return "no features and no normalised outputs";
        if (!p.state) return "a causal mask and as many queries as keys are wanted";
        if (p.delta) {
            if (p.dim != p.dim_v) return "gated_delta_net wants keys and values of one size";
            // it reads key head h mod heads_kv, which is h / (heads / heads_kv) only here
            for (long heads : {p.heads_q, p.heads_kv})
                if (heads != 1 && heads != p.heads_out()) return "gated_delta_net spreads key heads in another order";
            if (p.heads_v != p.heads_out()) return "gated_delta_net wants as many value heads as output heads";
            if (std::abs(p.scale * std::sqrt(double(p.dim)) - 1) > 1e-7) return "gated_delta_net has the scale 1/sqrt(dim)";
            return "";
        }
        if (p.gate != "head") return "no operator for gate " + p.gate + " without the delta rule";
        if (p.heads_q != p.heads_kv || p.heads_v < p.heads_q) return "ssm_scan wants as many query heads as key heads, and no fewer value heads";
        return "";
    }

    void plan(int threads) override {
        ggml_free(context);
        ggml_init_params with = {};
        with.mem_size = 4 * (q.size() + k.size() + v.size() + decay.size() + 2 * beta.size() + out.size() + 3 * state_in.size()) + (64 << 20);
        if (p.feature.empty()) with.mem_size += 2 * (p.seq_q + 64) * p.seq_kv;
        context = ggml_init(with);
        if (!context) throw std::runtime_error("no memory");
        if (p.feature.empty())
            attention();
        else
            rule();
        graph = ggml_new_graph(context);
        ggml_build_forward_expand(graph, result);
        todo = ggml_graph_plan(graph, threads, nullptr);
        work.resize(todo.work_size);
        todo.work_data = work.data();
    }

    void attention() {
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
    }

    void rule() {
        auto rows = [&](long columns, long heads) { return ggml_new_tensor_4d(context, GGML_TYPE_F32, columns, heads, p.seq_q, p.batch); };
        query = rows(p.dim, p.heads_q), key = rows(p.dim, p.heads_kv), value = rows(p.dim_v, p.heads_v);
        state = ggml_new_tensor_4d(context, GGML_TYPE_F32, p.dim, p.dim_v, p.heads_v, p.batch);
        if (p.delta) {
            gate = rows(p.gate == "key" ? p.dim : 1, p.heads_v), betas = rows(1, p.heads_v);
            result = ggml_gated_delta_net(context, query, key, value, gate, betas, state, 1);
            return;
        }
        // ssm_scan computes the gate exp(softplus(dt) A) and the value softplus(dt) x.
        gate = ggml_new_tensor_3d(context, GGML_TYPE_F32, p.heads_v, p.seq_q, p.batch);
        ggml_tensor *a = ggml_new_tensor_2d(context, GGML_TYPE_F32, 1, p.heads_v);
        std::fill_n((float *)a->data, p.heads_v, -1.f);
        ggml_tensor *ids = ggml_new_tensor_1d(context, GGML_TYPE_I32, p.batch);
        for (long b = 0; b < p.batch; b++) ((int32_t *)ids->data)[b] = b;
        result = ggml_ssm_scan(context, state, value, gate, a, key, query, ids, 1);
    }

    // turn copies rows [batch][head][row][column] to [batch][row][head][column], times a factor.
    void turn(const std::vector<float> &from, ggml_tensor *to, long heads, long columns, double factor = 1) {
        const float *row = from.data();
        for (long b = 0; b < p.batch; b++)
            for (long h = 0; h < heads; h++)
                for (long i = 0; i < p.seq_q; i++, row += columns) {
                    float *at = (float *)to->data + ((b * p.seq_q + i) * heads + h) * columns;
                    for (long c = 0; c < columns; c++) at[c] = float(row[c] * factor);
                }
    }

    void normalise(std::vector<float> &x) {
        for (auto row = x.begin(); p.norm != "none" && row != x.end(); row += p.dim) {
            double sum = 0;
            for (long c = 0; c < p.dim; c++) sum += double(row[c]) * row[c];
            double by = p.norm == "sum" ? std::sqrt(sum + p.norm_eps) : std::max(std::sqrt(sum), p.norm_eps);
            for (long c = 0; c < p.dim; c++) row[c] = float(row[c] / by);
        }
    }

    void load_rule() {
        normalise(q), normalise(k);
        turn(q, query, p.heads_q, p.dim, p.delta ? 1 : p.scale);
        turn(k, key, p.heads_kv, p.dim);
        std::vector<float> step = decay;
        if (p.delta) {
            turn(v, value, p.heads_v, p.dim_v);
            if (decay.empty()) step.assign(beta.size(), 0);
            turn(step, gate, p.heads_v, p.gate == "key" ? p.dim : 1);
            turn(beta, betas, p.heads_v, 1);
        } else {
            // The inverse of softplus, of -g: never 0, as values are divided by it.
            std::vector<float> x = v;
            for (size_t t = 0; t < step.size(); t++) {
                if (decay[t] > 0) throw std::runtime_error("ssm_scan has no positive gates");
                double by = std::clamp(-double(decay[t]), 1e-20, 1e4);
                step[t] = float(by > 20 ? by : std::log(std::expm1(by)));
                for (long c = 0; c < p.dim_v; c++) x[t * p.dim_v + c] = float(x[t * p.dim_v + c] / by);
            }
            turn(x, value, p.heads_v, p.dim_v);
            turn(step, gate, p.heads_v, 1);
        }
        swap_state(state_in.data(), (float *)state->data, p.dim, p.dim_v);
    }

    // swap_state transposes the rows by columns numbers of every head of a state.
    void swap_state(const float *from, float *to, long rows, long columns) {
        for (long n = p.batch * p.heads_v; n > 0; n--, from += rows * columns, to += rows * columns)
            for (long i = 0; i < rows; i++)
                for (long j = 0; j < columns; j++) to[j * rows + i] = from[i * columns + j];
    }

    void load() override {
        if (!p.feature.empty()) return load_rule();
        std::memcpy(query->data, q.data(), 4 * q.size());
        std::memcpy(key->data, k.data(), 4 * k.size());
        std::memcpy(value->data, v.data(), 4 * v.size());
    }

    void call() override {
        if (ggml_graph_compute(graph, &todo) != GGML_STATUS_SUCCESS) throw std::runtime_error("the graph failed");
    }

    // ggml's rows are [batch][row][head][column]. The state follows them.
    void store() override {
        auto *from = (const float *)result->data;
        const long heads = p.heads_out();
        for (long b = 0; b < p.batch; b++)
            for (long i = 0; i < p.seq_q; i++)
                for (long h = 0; h < heads; h++, from += p.dim_v)
                    std::memcpy(&out[((b * heads + h) * p.seq_q + i) * p.dim_v], from, 4 * p.dim_v);
        if (!state_out.empty()) swap_state(from, state_out.data(), p.dim_v, p.dim);
    }
};

int main() {
    Ggml peer;
    return serve(peer);
}
