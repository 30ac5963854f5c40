// Attention by its definition, in doubles: the shortest peer, to copy for a new one. In this
// folder:
//
//   g++ -O2 -o peer peer.cpp
//
// and in the root of the repository:
//
//   benchrun sweep --peer plain=peers/plain/peer --kernel naive,plain ...
#include <algorithm>
#include <cmath>

#include "../peer.hpp"

struct Plain : Peer {
    std::vector<double> weights, state, sums, fq, fk, u;

    std::string about() override { return "attention in plain C++"; }
    bool linear() override { return true; }

    std::string refusal(const Problem &p) override {
        if (!p.feature.empty()) return p.state ? "" : "linear: causal, with as many queries as keys";
        return p.mask == "full" || p.causal() ? "" : "no mask " + p.mask;
    }

    void plan(int) override {
        weights.resize(p.seq_kv);
        state.resize(p.dim * p.dim_v), sums.resize(p.dim), fq.resize(p.dim), fk.resize(p.dim), u.resize(p.dim_v);
    }

    void call() override {
        if (!p.feature.empty()) {
            for (long b = 0; b < p.batch; b++)
                for (long h = 0; h < p.heads_state(); h++) recur(b, h);
            return;
        }
        for (long b = 0; b < p.batch; b++)
            for (long h = 0; h < p.heads_q; h++)
                for (long i = 0; i < p.seq_q; i++) {
                    long shared = b * p.heads_kv + h / (p.heads_q / p.heads_kv), own = (b * p.heads_q + h) * p.seq_q + i;
                    row(&q[own * p.dim], &k[shared * p.seq_kv * p.dim], &v[shared * p.seq_kv * p.dim_v], p.visible(i), &out[own * p.dim_v]);
                }
    }

    void row(const float *q, const float *k, const float *v, long keys, float *out) {
        double most = -INFINITY, sum = 0;
        for (long j = 0; j < keys; j++) {
            double s = 0;
            for (long c = 0; c < p.dim; c++) s += double(q[c]) * k[j * p.dim + c];
            most = std::max(most, weights[j] = s * p.scale);
        }
        for (long j = 0; j < keys; j++) sum += weights[j] = std::exp(weights[j] - most);
        for (long c = 0; c < p.dim_v; c++) {
            double x = 0;
            for (long j = 0; j < keys; j++) x += weights[j] * v[j * p.dim_v + c];
            out[c] = keys > 0 ? x / sum : 0;
        }
    }

    // recur reads a sequence token by token, and keeps the state of one head.
    void recur(long b, long h) {
        const long heads = p.heads_state(), group = p.heads_out() / heads, d = p.dim, dv = p.dim_v;
        const long kh = b * p.heads_kv + h / (heads / p.heads_kv), vh = b * p.heads_v + h / (heads / p.heads_v);
        const long at = (b * heads + h) * d * dv, behind = p.batch * heads * d * dv + (b * heads + h) * d;
        std::copy_n(&state_in[at], d * dv, state.begin());
        if (!p.unnormalised) std::copy_n(&state_in[behind], d, sums.begin());
        for (long t = 0; t < p.seq_kv; t++) {
            features(&k[(kh * p.seq_kv + t) * d], fk);
            const long token = vh * p.seq_kv + t;
            for (long i = 0; i < d && p.gate != "none"; i++) {
                double alpha = std::exp(double(decay[p.gate == "key" ? token * d + i : token]));
                for (long c = 0; c < dv; c++) state[i * dv + c] *= alpha;
                sums[i] *= alpha;
            }
            for (long c = 0; c < dv; c++) {
                u[c] = v[token * dv + c];
                for (long i = 0; i < d && p.delta; i++) u[c] -= state[i * dv + c] * fk[i];
                if (p.delta) u[c] *= beta[token];
            }
            for (long i = 0; i < d; i++) {
                for (long c = 0; c < dv; c++) state[i * dv + c] += fk[i] * u[c];
                sums[i] += fk[i];
            }
            for (long o = h * group; o < (h + 1) * group; o++) {
                features(&q[((b * p.heads_q + o / (p.heads_out() / p.heads_q)) * p.seq_q + t) * d], fq);
                double factor = p.scale, sum = p.eps;
                for (long i = 0; i < d; i++) sum += fq[i] * sums[i];
                if (!p.unnormalised) factor = 1 / sum;
                for (long c = 0; c < dv; c++) {
                    double x = 0;
                    for (long i = 0; i < d; i++) x += fq[i] * state[i * dv + c];
                    out[((b * p.heads_out() + o) * p.seq_q + t) * dv + c] = x * factor;
                }
            }
        }
        std::copy_n(state.begin(), d * dv, &state_out[at]);
        if (!p.unnormalised) std::copy_n(sums.begin(), d, &state_out[behind]);
    }

    // features writes the features of a row after its normalisation.
    void features(const float *row, std::vector<double> &to) {
        double sum = 0, by = 1;
        for (long i = 0; i < p.dim; i++) sum += double(row[i]) * row[i];
        if (p.norm == "sum") by = std::sqrt(sum + p.norm_eps);
        if (p.norm == "max") by = std::max(std::sqrt(sum), p.norm_eps);
        for (long i = 0; i < p.dim; i++) {
            double x = row[i] / by;
            if (p.feature == "elu+1") x = x > 0 ? x + 1 : std::exp(x);
            if (p.feature == "relu+1") x = x > 0 ? x + 1 : x <= 0 ? 1 : x;
            to[i] = x;
        }
    }
};

int main() {
    Plain peer;
    return serve(peer);
}
