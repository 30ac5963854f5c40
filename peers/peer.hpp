// The common part of peers in C++: the requests and answers of package peers. A peer derives from
// Peer, and its main calls serve.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

struct Problem {
    long batch, heads_q, heads_kv, seq_q, seq_kv, dim, dim_v;
    double scale;
    std::string mask;

    // Of linear problems. A softmax problem has no feature, and heads_v is heads_kv.
    std::string feature, gate, norm;
    bool unnormalised, delta, state;
    double eps, norm_eps;
    long heads_v;

    long heads_out() const { return std::max(heads_q, heads_v); }
    long heads_state() const { return std::max(heads_kv, heads_v); }
    // state_size returns the length of a state, or 0 if there is none.
    long state_size() const { return state ? batch * heads_state() * dim * (dim_v + !unnormalised) : 0; }

    bool causal() const { return mask == "causal" || mask == "causal-topleft"; }

    // visible returns the number of keys that query i sees. They are the first ones.
    long visible(long i) const {
        if (!causal()) return seq_kv;
        return std::clamp(mask == "causal" ? i + 1 + seq_kv - seq_q : i + 1, 0L, seq_kv);
    }
};

struct Peer {
    Problem p;
    std::vector<float> q, k, v, out;  // rows [batch][head][row][column]
    std::vector<float> decay, beta;   // the same, of linear problems that have them
    std::vector<float> state_in, state_out;  // [batch][head][column of k][column of v]

    virtual ~Peer() = default;
    virtual std::string about() = 0;
    virtual bool linear() { return false; }  // whether it computes linear problems
    virtual std::string refusal(const Problem &) = 0;  // why it does not compute this, or ""
    virtual void plan(int threads) = 0;                // plans p; the operands have their sizes
    virtual void load() {}                             // the operands have their numbers
    virtual void call() = 0;                           // computes out
    virtual void store() {}                            // called before out is sent
};

// field returns the text of a value in a request. Its keys are known, and its strings need no
// escapes.
inline std::string field(const std::string &line, const std::string &key) {
    size_t at = line.find("\"" + key + "\":");
    if (at == std::string::npos) return "";
    at += key.size() + 3;
    if (line[at] == '"') return line.substr(at + 1, line.find('"', at + 1) - at - 1);
    return line.substr(at, line.find_first_of(",}", at) - at);
}

inline long whole(const std::string &line, const std::string &key) { return std::atol(field(line, key).c_str()); }

inline std::string quoted(const std::string &text) {
    std::string s = "\"";
    for (char c : text) s += c == '"' || c == '\\' || (unsigned char)c < 32 ? ' ' : c;
    return s + "\"";
}

inline long nanoseconds(clockid_t clock) {
    timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

inline void receive(std::vector<float> &to) {
    if (std::fread(to.data(), 4, to.size(), stdin) != to.size()) throw std::runtime_error("a tensor ends early");
}

// answer computes a request and returns the fields of the answer.
inline std::string answer(Peer &peer, const std::string &line) {
    const std::string is = field(line, "do");
    if (is == "about") return "\"about\":" + quoted(peer.about()) + (peer.linear() ? ",\"linear\":true" : "");
    if (is == "check" || is == "plan") {
        Problem p = {whole(line, "batch"), whole(line, "heads_q"), whole(line, "heads_kv"), whole(line, "seq_q"), whole(line, "seq_kv"),
                     whole(line, "dim"), whole(line, "dim_v"), std::atof(field(line, "scale").c_str()), field(line, "mask"),
                     field(line, "feature"), field(line, "gate"), field(line, "norm"),
                     field(line, "unnormalised") == "true", field(line, "delta") == "true", field(line, "state") == "true",
                     std::atof(field(line, "eps").c_str()), std::atof(field(line, "norm_eps").c_str()), whole(line, "heads_kv")};
        if (!p.feature.empty()) p.heads_v = whole(line, "heads_v");
        std::string no = peer.refusal(p);
        for (long n : {p.batch, p.heads_q, p.heads_kv, p.seq_q, p.seq_kv, p.dim, p.dim_v})
            if (n == 0) no = "something has no size";
        if (!no.empty()) return (is == "check" ? "\"refused\":" : "\"error\":") + quoted(no);
        if (is == "check") return "";
        peer.p = p;
        peer.q.resize(p.batch * p.heads_q * p.seq_q * p.dim);
        peer.k.resize(p.batch * p.heads_kv * p.seq_kv * p.dim);
        peer.v.resize(p.batch * p.heads_v * p.seq_kv * p.dim_v);
        peer.out.resize(p.batch * p.heads_out() * p.seq_q * p.dim_v);
        const bool gated = p.gate == "head" || p.gate == "key";
        peer.decay.resize(gated ? p.batch * p.heads_v * p.seq_kv * (p.gate == "key" ? p.dim : 1) : 0);
        peer.state_in.resize(p.state_size());
        peer.state_out.resize(p.state_size());
        peer.beta.resize(p.delta ? p.batch * p.heads_v * p.seq_kv : 0);
        peer.plan(whole(line, "threads"));
        return "";
    }
    if (is == "load") {
        receive(peer.q);
        receive(peer.k);
        receive(peer.v);
        receive(peer.decay);
        receive(peer.beta);
        receive(peer.state_in);
        peer.load();
        return "";
    }
    if (is == "run") {
        long wall = nanoseconds(CLOCK_MONOTONIC), cpu = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
        for (long n = whole(line, "calls"); n > 0; n--) peer.call();
        cpu = nanoseconds(CLOCK_PROCESS_CPUTIME_ID) - cpu, wall = nanoseconds(CLOCK_MONOTONIC) - wall;
        return "\"wall_ns\":" + std::to_string(wall) + ",\"cpu_ns\":" + std::to_string(cpu);
    }
    if (is == "store") {
        peer.store();
        return "";
    }
    throw std::runtime_error("not known");
}

// serve answers requests until there are no more. It redirects what a library prints to the
// standard error.
inline int serve(Peer &peer) {
    std::FILE *out = fdopen(dup(1), "w");
    dup2(2, 1);
    std::string line;
    for (int c; (c = std::getchar()) != EOF;) {
        if (c != '\n') {
            line += c;
            continue;
        }
        bool failed = false;
        std::string fields;
        try {
            fields = answer(peer, line);
        } catch (const std::exception &e) {
            failed = true;
            fields = "\"error\":" + quoted(e.what());
        }
        std::fprintf(out, "{\"id\":%ld%s%s}\n", whole(line, "id"), fields.empty() ? "" : ",", fields.c_str());
        if (!failed && field(line, "do") == "store") {
            std::fwrite(peer.out.data(), 4, peer.out.size(), out);
            std::fwrite(peer.state_out.data(), 4, peer.state_out.size(), out);
        }
        std::fflush(out);
        line.clear();
    }
    return 0;
}
