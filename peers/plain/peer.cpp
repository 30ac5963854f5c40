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
    std::vector<double> weights;

    std::string about() override { return "attention in plain C++"; }
    std::string refusal(const Problem &p) override { return p.mask == "full" || p.causal() ? "" : "no mask " + p.mask; }
    void plan(int) override { weights.resize(p.seq_kv); }

    void call() override {
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
};

int main() {
    Plain peer;
    return serve(peer);
}
