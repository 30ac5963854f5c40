package oracle_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"attnlab/attn"
	"attnlab/attn/oracle"
)

// gates are operands Decay of token i and channel c, by name.
var gates = map[string]func(r *rand.Rand, i, c int) float64{
	"none":   func(*rand.Rand, int, int) float64 { return 0 },
	"faint":  func(*rand.Rand, int, int) float64 { return -1e-4 },
	"mild":   func(r *rand.Rand, _, _ int) float64 { return logSigmoid(r) / 16 },
	"usual":  func(r *rand.Rand, _, _ int) float64 { return logSigmoid(r) },
	"strong": func(r *rand.Rand, _, _ int) float64 { return -20 * r.Float64() },
	"spikes": func(r *rand.Rand, i, c int) float64 {
		if g := logSigmoid(r) / 16; i%16 != 15 || c%2 != 0 {
			return g
		}
		return -70
	},
}

func logSigmoid(r *rand.Rand) float64 { return -math.Log1p(math.Exp(-r.NormFloat64())) }

// A form32 is a way to compute a recurrence in float32.
type form32 int

const (
	byToken form32 = iota // as defined, one rounding for each operation
	byChunk               // chunks of 32 tokens, gates as running products of at least 2^-60

	// By token, with sums G of logarithms over 64 tokens: gates are differences of them, or keys
	// carry e^-G, at most e^50.
	logSums
	clampExp
)

// A step32 is a token as the backward pass uses it.
type step32 struct {
	k, v, alpha, before, miss, u, after []float32
	beta                                float32
}

// A head32 computes a state head in float32.
type head32 struct {
	p     *attn.Problem
	a     *attn.Args
	b, s  int
	width int       // columns of the state: z is the last one of a normalised problem
	S     []float32 // [dim][width]
}

func newHead32(p *attn.Problem, a *attn.Args, b, s int) *head32 {
	h := &head32{p, a, b, s, p.DimV, nil}
	if !p.Linear.Unnormalised {
		h.width++
	}
	h.S = make([]float32, p.Dim*h.width)
	h.state(a.StateIn, func(own, given *float32) { *own = *given })
	return h
}

// state calls f for each number of the state and the same number of a slice like Args.StateIn.
func (h *head32) state(x []float32, f func(own, given *float32)) {
	d, dv, head := h.p.Dim, h.p.DimV, h.b*h.p.StateHeads()+h.s
	for i := range d {
		for c := range h.width {
			e := (head*d+i)*dv + c
			if c == dv {
				e = h.p.Batch*h.p.StateHeads()*d*dv + head*d + i
			}
			f(&h.S[i*h.width+c], &x[e])
		}
	}
}

func (h *head32) token(i int) (t step32) {
	p, a := h.p, h.a
	vh := p.StateHeadOf(h.s, p.ValueHeads())
	t.k = phi32(p, a.K.Row(h.b, i, p.StateHeadOf(h.s, p.HeadsKV)))
	t.v = append([]float32(nil), a.V.Row(h.b, i, vh)...)
	if h.width > p.DimV {
		t.v = append(t.v, 1)
	}
	t.alpha = make([]float32, p.Dim)
	for j := range t.alpha {
		if t.alpha[j] = 1; p.Linear.Gate != attn.NoGate {
			t.alpha[j] = exp32(h.gate(i, j))
		}
	}
	if t.beta = 1; p.Linear.Delta {
		t.beta = a.Terms.Beta.Row(h.b, i, p.StateHeadOf(h.s, a.Terms.Beta.H))[0]
	}
	return t
}

func (h *head32) gate(i, j int) float32 {
	g := h.a.Terms.Decay.Row(h.b, i, h.p.StateHeadOf(h.s, h.p.ValueHeads()))
	return g[j%len(g)]
}

// outs returns the output heads that read the state.
func (h *head32) outs() (lo, hi int) {
	group := h.p.OutHeads() / h.p.StateHeads()
	return h.s * group, (h.s + 1) * group
}

func (h *head32) query(i, out int) []float32 {
	return phi32(h.p, h.a.Q.Row(h.b, i, h.p.HeadOf(out, h.p.HeadsQ)))
}

// forward computes all tokens one by one, and returns them.
func (h *head32) forward(form form32) []step32 {
	w, steps := h.width, make([]step32, h.a.K.S)
	sums := make([]float32, h.p.Dim)
	for i := range steps {
		t := h.token(i)
		written := append([]float32(nil), t.k...)
		if i%64 == 0 {
			clear(sums)
		}
		for j, alpha := range t.alpha {
			if form == logSums || form == clampExp {
				last := sums[j]
				sums[j] += h.gate(i, j)
				if form == logSums {
					alpha = exp32(sums[j] - last)
				} else {
					written[j] *= exp32(min(-sums[j], 50)) * exp32(sums[j])
				}
			}
			for c := range w {
				h.S[j*w+c] *= alpha
			}
		}
		t.before = append(t.before, h.S...)
		t.miss = append(t.miss, t.v...)
		t.u = append(t.u, t.v...)
		if h.p.Linear.Delta {
			for c := range t.u {
				t.miss[c] -= column32(h.S, t.k, c, w)
				t.u[c] = t.beta * t.miss[c]
			}
		}
		for j, k := range written {
			for c, u := range t.u {
				h.S[j*w+c] += float32(k * u)
			}
		}
		t.after = append(t.after, h.S...)
		lo, hi := h.outs()
		for out := lo; out < hi; out++ {
			h.write(i, out, func(q []float32, c int) float32 { return column32(h.S, q, c, w) })
		}
		steps[i] = t
	}
	return steps
}

// write computes an output row from the products of the state with the query.
func (h *head32) write(i, out int, product func(q []float32, c int) float32) {
	q := h.query(i, out)
	for c := range h.p.DimV {
		x := product(q, c)
		if h.width > h.p.DimV {
			x /= product(q, h.p.DimV) + float32(h.p.Linear.Eps)
		} else {
			x *= float32(h.p.Scale())
		}
		h.a.Out.Row(h.b, i, out)[c] = x
	}
}

// chunks computes all tokens in chunks:
//
//	U = beta (V - K~ S0 - stril(K~ Kh^T) U)    K~ = k o P, Kh = k / P, P the product of the gates
//	O = (q o P) S0 + tril((q o P) Kh^T) U      S1 = P o (S0 + Kh^T U)
func (h *head32) chunks() {
	w := h.width
	for i := 0; i < h.a.K.S; {
		var ks, us [][]float32
		P := make([]float32, h.p.Dim)
		for first := i; i < min(first+32, h.a.K.S); i++ {
			t, small := h.token(i), false
			next := make([]float32, len(P))
			for j, alpha := range t.alpha {
				if next[j] = P[j] * alpha; i == first {
					for c := range w {
						h.S[j*w+c] *= alpha
					}
					next[j] = 1
				}
				small = small || next[j] < 0x1p-60
			}
			if small {
				break
			}
			P = next
			kh := make([]float32, len(P))
			down, u := append([]float32(nil), t.k...), append([]float32(nil), t.v...)
			for j, k := range t.k {
				kh[j] = k / P[j]
				down[j] *= P[j]
			}
			if h.p.Linear.Delta {
				for c := range u {
					u[c] -= column32(h.S, down, c, w)
				}
				for l, k := range ks {
					weight := dot32(down, k)
					for c := range u {
						u[c] -= float32(weight * us[l][c])
					}
				}
				for c := range u {
					u[c] *= t.beta
				}
			}
			ks, us = append(ks, kh), append(us, u)
			lo, hi := h.outs()
			for out := lo; out < hi; out++ {
				h.write(i, out, func(q []float32, c int) float32 {
					q = append([]float32(nil), q...)
					for j := range q {
						q[j] *= P[j]
					}
					x := column32(h.S, q, c, w)
					for l, k := range ks {
						x += float32(dot32(q, k) * us[l][c])
					}
					return x
				})
			}
		}
		for j := range P {
			for c := range w {
				x := h.S[j*w+c]
				for l, k := range ks {
					x += float32(k[j] * us[l][c])
				}
				h.S[j*w+c] = P[j] * x
			}
		}
	}
}

// backward computes the gradients of a head token by token. Without sums a gate's gradient is the
// product of S~ with its gradient. With sums it is a sum over the rest of the chunk of 64 tokens,
// as chunked kernels compute it. It begins with the product of the state with its gradient at the
// end of the chunk. Each token adds the products of its queries and keys with their gradients.
func (h *head32) backward(steps []step32, g *attn.Grads, sums bool) {
	p, a, w, d := h.p, h.a, h.width, h.p.Dim
	dS, acc := make([]float32, d*w), make([]float32, d)
	own := &head32{p, a, h.b, h.s, w, dS}
	own.state(g.StateOut, func(own, given *float32) { *own = *given })
	vh, kh := p.StateHeadOf(h.s, p.ValueHeads()), p.StateHeadOf(h.s, p.HeadsKV)
	for i := len(steps) - 1; i >= 0; i-- {
		t := &steps[i]
		if i == len(steps)-1 || i%64 == 63 {
			for j := range acc {
				acc[j] = dot32(dS[j*w:][:w], t.after[j*w:][:w])
			}
		}
		lo, hi := h.outs()
		for out := lo; out < hi; out++ {
			q, do := h.query(i, out), make([]float32, w)
			copy(do, g.Out.Row(h.b, i, out))
			if w > p.DimV {
				den := column32(t.after, q, p.DimV, w) + float32(p.Linear.Eps)
				for c := range p.DimV {
					o := column32(t.after, q, c, w) / den
					do[c] /= den
					do[p.DimV] -= float32(do[c] * o)
				}
			} else {
				for c := range do {
					do[c] *= float32(p.Scale())
				}
			}
			dq := make([]float32, d)
			for j := range dq {
				dq[j] = dot32(t.after[j*w:][:w], do)
				acc[j] += float32(q[j] * dq[j])
				for c := range do {
					dS[j*w+c] += float32(q[j] * do[c])
				}
			}
			qh := p.HeadOf(out, p.HeadsQ)
			through32(p, g.Q.Row(h.b, i, qh), a.Q.Row(h.b, i, qh), dq)
		}
		miss, dk := make([]float32, w), make([]float32, d)
		for c := range w {
			du := column32(dS, t.k, c, w)
			if c < p.DimV {
				g.V.Row(h.b, i, vh)[c] += t.beta * du
			}
			if p.Linear.Delta {
				miss[c] = t.beta * du
				g.Terms.Beta.Row(h.b, i, p.StateHeadOf(h.s, g.Terms.Beta.H))[0] += float32(du * t.miss[c])
			}
		}
		for j := range dk {
			row, before := dS[j*w:][:w], t.before[j*w:][:w]
			wrote, read := dot32(row, t.u), dot32(before, miss)
			dk[j] = wrote - read
			acc[j] -= float32(t.k[j] * wrote)
			acc[j] -= float32(t.k[j] * read)
			for c := range row {
				row[c] -= float32(t.k[j] * miss[c])
			}
			if p.Linear.Gate != attn.NoGate {
				x := acc[j]
				if !sums {
					x = dot32(row, before)
				}
				to := g.Terms.Decay.Row(h.b, i, vh)
				to[j%len(to)] += x
			}
			for c := range row {
				row[c] *= t.alpha[j]
			}
		}
		through32(p, g.K.Row(h.b, i, kh), a.K.Row(h.b, i, kh), dk)
	}
	own.state(g.StateIn, func(own, given *float32) { *given = *own })
}

func exp32(x float32) float32 { return float32(math.Exp(float64(x))) }

func dot32(x, y []float32) (sum float32) {
	for i := range x {
		sum += float32(x[i] * y[i])
	}
	return sum
}

// column32 returns the product of column c of S with x.
func column32(S, x []float32, c, w int) (sum float32) {
	for j, x := range x {
		sum += float32(S[j*w+c] * x)
	}
	return sum
}

func length32(p *attn.Problem, x []float32) float32 {
	return float32(math.Sqrt(float64(dot32(x, x) + float32(p.Linear.NormEps))))
}

// phi32 applies the norm and the feature map to a row.
func phi32(p *attn.Problem, x []float32) []float32 {
	y := append([]float32(nil), x...)
	for i := range y {
		if p.Linear.Norm != attn.NoNorm {
			y[i] /= length32(p, x)
		}
		switch {
		case p.Linear.Feature == attn.Identity:
		case y[i] > 0:
			y[i]++
		default:
			y[i] = exp32(y[i])
		}
	}
	return y
}

// through32 adds to to the gradient of row x, from that of its features.
func through32(p *attn.Problem, to, x, dy []float32) {
	by, sum := float32(1), float32(0)
	y := append([]float32(nil), x...)
	if p.Linear.Norm != attn.NoNorm {
		by = length32(p, x)
		for i := range y {
			y[i] /= by
		}
	}
	for i := range y {
		if p.Linear.Feature != attn.Identity && y[i] <= 0 {
			dy[i] *= exp32(y[i])
		}
	}
	if p.Linear.Norm != attn.NoNorm {
		sum = dot32(y, dy)
	}
	for i := range to {
		to[i] += (dy[i] - float32(y[i]*sum)) / by
	}
}

// calibration are the rules on which forms are compared with the tolerance, by name.
var calibration = map[string]func(attn.Problem) attn.Problem{
	"linear": func(p attn.Problem) attn.Problem { p = attn.RetNet(p); p.Linear.Gate = attn.NoGate; return p },
	"normalised": func(p attn.Problem) attn.Problem {
		p = attn.RetNet(p)
		p.Linear = attn.Linear{Gate: attn.HeadGate, HeadsV: p.Linear.HeadsV}
		return p
	},
	"retnet": attn.RetNet, "gla": attn.GLA, "delta": attn.DeltaNet, "gated-delta": attn.GatedDelta, "kda": attn.KDA,
}

// A trial is a random call of one of the rules, with one of the gates.
type trial struct {
	name string
	gate string
	p    attn.Problem
	a    *attn.Args
}

// trials calls f for random calls of n tokens and d channels: two value heads share a key head, and
// beta is up to 2.
func trials(t *testing.T, rule string, n, d int, f func(x trial)) {
	for gate, g := range gates {
		p := calibration[rule](attn.Problem{Batch: 1, SeqQ: n, SeqKV: n, HeadsQ: 2, HeadsKV: 1, Dim: d, DimV: 4, Linear: attn.Linear{HeadsV: 2}})
		if p.Linear.Gate == attn.NoGate && gate != "none" {
			continue
		}
		seed := uint64(n + 100*d)
		a, r := ruledCall(p, seed), rand.New(rand.NewPCG(seed, 0x70))
		for h := range a.Terms.Decay.H {
			for i := range a.Terms.Decay.S {
				row := a.Terms.Decay.Row(0, i, h)
				for c := range row {
					row[c] = float32(g(r, i, c+h))
				}
			}
		}
		f(trial{fmt.Sprintf("%s, gates %s, n %d, d %d", rule, gate, n, d), gate, p, a})
	}
}

// judge returns the verdict on a form.
func (x *trial) judge(t *testing.T, form form32) oracle.Verdict {
	t.Helper()
	o, err := oracle.New(x.p, x.a)
	if err != nil {
		t.Fatal(err)
	}
	x.run(form)
	return o.Judge(oracle.All(&x.p, x.a))
}

// run writes the outputs of a form.
func (x *trial) run(form form32) {
	for s := range x.p.StateHeads() {
		h := newHead32(&x.p, x.a, 0, s)
		if form == byChunk {
			h.chunks()
		} else {
			h.forward(form)
		}
		h.state(x.a.StateOut, func(own, given *float32) { *given = *own })
	}
}

// sizes are numbers of tokens and of channels.
var sizes = [][2]int{{65, 1}, {65, 8}, {65, 64}, {1000, 8}, {3000, 3}}

// TestTolerance checks that honest float32 recurrences need at most half of the tolerance, by token
// or by chunk, and that nearly all numbers are judged.
func TestTolerance(t *testing.T) {
	for rule := range calibration {
		worst := map[form32]float64{}
		for _, size := range sizes {
			trials(t, rule, size[0], size[1], func(x trial) {
				for _, form := range []form32{byToken, byChunk} {
					v := x.judge(t, form)
					if worst[form] = max(worst[form], v.Worst); !(v.Worst <= 0.5) || float64(v.Judged) < 0.95*float64(v.Numbers) {
						t.Errorf("%s: form %d: %.2f of the tolerance, want at most 0.5, %d of %d numbers judged: %s", x.name, form, v.Worst, v.Judged, v.Numbers, v.Where)
					}
				}
			})
		}
		t.Logf("%s: at most %.2f of the tolerance by token, %.2f by chunk", rule, worst[byToken], worst[byChunk])
	}
}

// TestToleranceIsExceeded checks that sums of logarithms and limited exponentials are wrong where
// some gates are strong.
func TestToleranceIsExceeded(t *testing.T) {
	for rule, set := range calibration {
		if p := set(attn.Problem{}); p.Linear.Gate == attn.NoGate {
			continue
		}
		trials(t, rule, 1000, 8, func(x trial) {
			if x.gate != "spikes" && x.gate != "strong" {
				return
			}
			for _, form := range []form32{logSums, clampExp} {
				v := x.judge(t, form)
				if !(v.Worst > 1) {
					t.Errorf("%s: form %d passes at %.2f of the tolerance", x.name, form, v.Worst)
				}
				t.Logf("%s: form %d at %.3g of the tolerance", x.name, form, v.Worst)
			}
		})
	}
}

// TestToleranceOfGradients checks that an honest float32 backward pass needs at most half of the
// tolerance, also if it takes the gradients of gates from sums over a chunk.
func TestToleranceOfGradients(t *testing.T) {
	for rule := range calibration {
		worst := map[string]float64{}
		for _, size := range sizes[:4] {
			trials(t, rule, size[0], size[1], func(x trial) {
				for _, sums := range []bool{false, true} {
					v := x.judgeGrads(t, sums, worst)
					if !(v.Worst <= 0.5) || float64(v.Judged) < 0.95*float64(v.Numbers) {
						t.Errorf("%s: %.2f of the tolerance, want at most 0.5, %d of %d numbers judged: %s", x.name, v.Worst, v.Judged, v.Numbers, v.Where)
					}
				}
			})
		}
		for name, worst := range worst {
			t.Logf("%s: %s at most %.3f of the tolerance", rule, name, worst)
		}
	}
}

// judgeGrads returns the verdict on the gradients, and raises the worst ratios by name.
func (x *trial) judgeGrads(t *testing.T, sums bool, worst map[string]float64) oracle.Verdict {
	t.Helper()
	p := x.p
	p.Want = attn.WantGrad
	g := ruledGrads(p, x.a, 5)
	o, err := oracle.New(p, x.a)
	if err != nil {
		t.Fatal(err)
	}
	for s := range p.StateHeads() {
		h := newHead32(&p, x.a, 0, s)
		h.backward(h.forward(byToken), g, sums)
	}
	if _, err := o.EachGrad(g, func(name string, _ oracle.Index, got []float32, want, tol []float64) {
		for c, x := range got {
			worst[name] = max(worst[name], oracle.Ratio(float64(x), want[c], tol[c]))
		}
	}); err != nil {
		t.Fatal(err)
	}
	v, err := o.JudgeGrads(g)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestNotFinite checks that NaN and infinities in one token go where a float32 recurrence takes
// them.
func TestNotFinite(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for rule := range calibration {
		for name, edit := range map[string]func(a *attn.Args) *float32{
			"q": func(a *attn.Args) *float32 { return &a.Q.Row(0, 5, 1)[1] },
			"k": func(a *attn.Args) *float32 { return &a.K.Row(0, 5, 0)[1] },
			"v": func(a *attn.Args) *float32 { return &a.V.Row(0, 5, 1)[1] },
			"g": func(a *attn.Args) *float32 {
				if a.Terms.Decay.Data == nil {
					return new(float32)
				}
				return &a.Terms.Decay.Row(0, 5, 1)[0]
			},
			"beta": func(a *attn.Args) *float32 {
				if a.Terms.Beta.Data == nil {
					return new(float32)
				}
				return &a.Terms.Beta.Row(0, 5, 1)[0]
			},
			"state": func(a *attn.Args) *float32 { return &a.StateIn[2] },
		} {
			for _, x := range []float32{nan, inf, -inf, 1e30} {
				trials(t, rule, 9, 3, func(c trial) {
					*edit(c.a) = x
					if v := c.judge(t, byToken); !(v.Worst <= 1) {
						t.Errorf("%s: %v in %s: %.2g of the tolerance: %s", c.name, x, name, v.Worst, v.Where)
					}
				})
			}
		}
	}
}
