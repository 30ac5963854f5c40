package oracle_test

import (
	"fmt"
	"math"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/num/dual"
	"gonum.org/v1/gonum/num/hyperdual"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/attn/oracle"
)

// small are problems that together have everything that a gradient passes through. The loss is a
// sum over all of their outputs.
var small = map[string]func(p *attn.Problem, a *attn.Args){
	"full":        func(p *attn.Problem, a *attn.Args) {},
	"causal":      func(p *attn.Problem, a *attn.Args) { p.Mask = attn.Causal() },
	"topleft":     func(p *attn.Problem, a *attn.Args) { p.Mask = attn.CausalTopLeft() },
	"window":      func(p *attn.Problem, a *attn.Args) { p.Mask = attn.Window(1, 1) },
	"blind-rows":  func(p *attn.Problem, a *attn.Args) { p.Mask, p.SeqKV = attn.Causal(), 2 },
	"bool":        func(p *attn.Problem, a *attn.Args) { p.Mask.Bitmap = attn.BoolBitmap },
	"lengths":     func(p *attn.Problem, a *attn.Args) { p.Lengths = true },
	"ragged":      func(p *attn.Problem, a *attn.Args) { p.Ragged = true },
	"scale":       func(p *attn.Problem, a *attn.Args) { p.Score.Scale = 0.3 },
	"temperature": func(p *attn.Problem, a *attn.Args) { p.Score.Temp = 0.7 },
	"softcap":     func(p *attn.Problem, a *attn.Args) { p.Score.Softcap = 1.5 },
	"bias":        func(p *attn.Problem, a *attn.Args) { p.Score.Terms = attn.TermBias },
	"alibi":       func(p *attn.Problem, a *attn.Args) { p.Score.Terms = attn.TermALiBi },
	"sinks":       func(p *attn.Problem, a *attn.Args) { p.Score.Terms = attn.TermSinks },
	"relative":    func(p *attn.Problem, a *attn.Args) { p.Score.Terms = attn.TermRelative },
	"metric":      func(p *attn.Problem, a *attn.Args) { p.Score.Terms, p.DimQ = attn.TermMetric, 6 },
	"halves":      func(p *attn.Problem, a *attn.Args) { p.Score.Rope = attn.RopeHalves },
	"interleaved": func(p *attn.Problem, a *attn.Args) { p.Score.Rope = attn.RopeInterleaved },
	"linear":      func(p *attn.Problem, a *attn.Args) { p.Op = attn.OpLinear },
	"linear-relu": func(p *attn.Problem, a *attn.Args) {
		p.Op, p.Linear.Feature, p.Mask = attn.OpLinear, attn.ReluPlusOne, attn.Causal()
	},
	"linear-identity": func(p *attn.Problem, a *attn.Args) {
		p.Op, p.Linear, p.Mask = attn.OpLinear, attn.Linear{Feature: attn.Identity, Unnormalised: true}, attn.CausalTopLeft()
	},
	"linear-eps": func(p *attn.Problem, a *attn.Args) { p.Op, p.Linear.Eps, p.Lengths = attn.OpLinear, 0.5, true },
	"everything": func(p *attn.Problem, a *attn.Args) {
		p.Mask = attn.Window(3, 1)
		p.Score = attn.Score{
			Scale: 0.4, Temp: 1.3, Softcap: 2, Rope: attn.RopeHalves,
			Terms: attn.TermBias | attn.TermALiBi | attn.TermSinks | attn.TermRelative | attn.TermMetric,
		}
	},
}

// smallCall lays out one of them, with a bias that batch entries and heads share.
func smallCall(t *testing.T, set func(p *attn.Problem, a *attn.Args)) (attn.Problem, *attn.Args, *attn.Grads) {
	p := attn.Problem{Batch: 2, SeqQ: 3, SeqKV: 4, HeadsQ: 4, HeadsKV: 2, Dim: 4, DimV: 3, Want: attn.WantGrad | attn.WantEntropy}
	if set(&p, nil); p.Op == attn.OpLinear {
		p.Want = attn.WantGrad
	}
	a, err := cases.NewArgs(p, "bhsd", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := cases.Fill("normal", p, a, 7); err != nil {
		t.Fatal(err)
	}
	if b := &a.Terms.Bias; b.Data != nil {
		b.H, b.SH = 1, 0
	}
	if a.Allowed.Bool != nil {
		a.Allowed.Bool[1], a.Allowed.Bool[6] = false, false
	}
	if a.KLen != nil {
		a.KLen[1] = 2
	}
	if p.Ragged {
		a.QStart[2], a.KStart[2] = a.QStart[1]+1, a.KStart[1]+3
	}
	g, err := cases.NewGrads(p, a, "bhsd", nil)
	if err != nil {
		t.Fatal(err)
	}
	cases.FillGrads(g, 11)
	return p, a, g
}

// answers returns the oracle's gradients by name, each in the order of cases.Rows.
func answers(t *testing.T, p attn.Problem, a *attn.Args, g *attn.Grads) map[string][]float64 {
	t.Helper()
	o, err := oracle.New(p, a)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]float64{}
	if _, err := o.EachGrad(g, func(name string, at oracle.Index, _ []float32, want, _ []float64) {
		rows[fmt.Sprint(name, at)] = append(rows[fmt.Sprint(name, at)], want...)
	}); err != nil {
		t.Fatal(err)
	}
	all := map[string][]float64{}
	cases.Outgoing(g, func(name string, tensor *attn.Tensor) {
		b0 := func(b, s int) (int, int) { return b, s }
		if p.Ragged {
			start := a.QStart
			if name != "dQ" {
				start = a.KStart
			}
			b0 = func(_, s int) (int, int) {
				for b := range p.Batch {
					if int(start[b]) <= s && s < int(start[b+1]) {
						return b, s - int(start[b])
					}
				}
				return 0, s // no sequence's
			}
		}
		cases.Rows(tensor, func(b, s, h int, row []float32) {
			b, s = b0(b, s)
			if name == "dSlopes" || name == "dSinks" {
				for h := range row {
					all[name] = append(all[name], rows[fmt.Sprint(name, oracle.Index{H: h})]...)
				}
				return
			}
			all[name] = append(all[name], rows[fmt.Sprint(name, oracle.Index{B: b, H: h, I: s})]...)
		})
	})
	return all
}

// A number is the arithmetic of one type in which the loss can be computed.
type number[T any] struct {
	of             func(float64) T
	value          func(T) float64
	inv            func(T) T
	add, mul       func(x, y T) T
	exp, log, tanh func(T) T
	scale          func(f float64, x T) T
}

var duals = number[dual.Number]{
	of: func(x float64) dual.Number { return dual.Number{Real: x} }, value: func(x dual.Number) float64 { return x.Real }, inv: dual.Inv, add: dual.Add, mul: dual.Mul,
	exp: dual.Exp, log: dual.Log, tanh: dual.Tanh, scale: dual.Scale,
}

var reals = number[float64]{
	of: func(x float64) float64 { return x }, value: func(x float64) float64 { return x }, inv: func(x float64) float64 { return 1 / x }, add: func(x, y float64) float64 { return x + y }, mul: func(x, y float64) float64 { return x * y },
	exp: math.Exp, log: math.Log, tanh: math.Tanh, scale: func(f, x float64) float64 { return f * x },
}

// loss computes Σ dO.O + dLSE LSE + dEntropy Entropy from the conventions of package attn, in any
// type of number. It reads element e of an operand through at.
func loss[T any](p *attn.Problem, a *attn.Args, g *attn.Grads, n number[T], at func(name string, e int, x float32) T) T {
	total := n.of(0)
	term := &a.Terms
	row := func(name string, t *attn.Tensor, b, s, h int) []T {
		off := b*t.SB + s*t.SS + h*t.SH
		out := make([]T, t.D)
		for c := range out {
			out[c] = at(name, off+c, t.Data[off+c])
		}
		return out
	}
	turn := func(x []T, b, pos int) []T {
		if p.Score.Rope == attn.NoRope {
			return x
		}
		x = append([]T(nil), x...)
		cos, sin := term.Cos.Row(b%term.Cos.B, pos, 0), term.Sin.Row(b%term.Sin.B, pos, 0)
		for c := range cos {
			i, j := c, c+len(cos)
			if p.Score.Rope == attn.RopeInterleaved {
				i, j = 2*c, 2*c+1
			}
			cs, sn := float64(cos[c]), float64(sin[c])
			x[i], x[j] = n.add(n.scale(cs, x[i]), n.scale(-sn, x[j])), n.add(n.scale(sn, x[i]), n.scale(cs, x[j]))
		}
		return x
	}
	dot := func(x, y []T) T {
		sum := n.of(0)
		for c := range x {
			sum = n.add(sum, n.mul(x[c], y[c]))
		}
		return sum
	}
	for b := range p.Batch {
		nq, nk := a.Queries(p, b), a.Keys(p, b)
		for h := range p.HeadsQ {
			for i := range nq {
				qb, qrow := a.QRow(p, b, i)
				pos := a.Pos(p, b) + i
				raw := row("dQ", &a.Q, qb, qrow, h)
				q := turn(raw, b, pos)
				if p.Score.Terms&attn.TermMetric != 0 {
					m := make([]T, p.Dim)
					for c := range m {
						m[c] = n.of(0)
					}
					for x := range q {
						for c, w := range row("dMetric", &term.Metric, 0, x, h%term.Metric.H) {
							m[c] = n.add(m[c], n.mul(q[x], w))
						}
					}
					q = m
				}
				if p.Op == attn.OpLinear {
					total = n.add(total, linearLoss(p, a, n, b, i, nk, q, g.Out.Row(qb, qrow, h), func(j int) (k, v []T) {
						return row("dK", &a.K, b, j, h/p.Group()), row("dV", &a.V, b, j, h/p.Group())
					}))
					continue
				}
				var z []T
				var values [][]T
				for j := range nk {
					if m := p.Mask; m.Band && (m.Left != attn.Unbounded && j < pos-m.Left || m.Right != attn.Unbounded && j > pos+m.Right) {
						continue
					}
					if !a.Shows(p, b, i, h, j) {
						continue
					}
					kb, krow := a.KRow(p, b, j)
					s := n.scale(p.Scale(), dot(q, turn(row("dK", &a.K, kb, krow, h/p.Group()), b, j)))
					if p.Score.Terms&attn.TermRelative != 0 {
						s = n.add(s, n.scale(p.Scale(), dot(raw, row("dRelative", &term.Relative, 0, a.Relative(p, b, i, j), h%term.Relative.H))))
					}
					if c := p.Score.Softcap; c != 0 {
						s = n.scale(c, n.tanh(n.scale(1/c, s)))
					}
					if p.Score.Terms&attn.TermALiBi != 0 {
						s = n.add(s, n.scale(-math.Abs(float64(pos-j)), at("dSlopes", h, term.Slopes[h])))
					}
					if p.Score.Terms&attn.TermBias != 0 {
						off, step := term.Bias.Offset(b, i, h)
						s = n.add(s, at("dBias", off+j*step, term.Bias.Data[off+j*step]))
					}
					z = append(z, n.scale(1/p.Temperature(), s))
					values = append(values, row("dV", &a.V, kb, krow, h/p.Group()))
				}
				sum, zero := n.of(0), n.of(0)
				for _, x := range z {
					sum = n.add(sum, n.exp(x))
				}
				sink := zero
				if p.Score.Terms&attn.TermSinks != 0 {
					sink = at("dSinks", h, term.Sinks[h])
					sum = n.add(sum, n.exp(sink))
				} else if len(z) == 0 {
					continue
				}
				lse := n.log(sum)
				weight := func(z T) T { return n.exp(n.add(z, n.scale(-1, lse))) }
				mean := zero
				if p.Score.Terms&attn.TermSinks != 0 {
					mean = n.mul(weight(sink), sink)
				}
				for j, x := range z {
					w := weight(x)
					mean = n.add(mean, n.mul(w, x))
					for c, v := range values[j] {
						total = n.add(total, n.scale(float64(g.Out.Row(qb, qrow, h)[c]), n.mul(w, v)))
					}
				}
				total = n.add(total, n.scale(float64(g.LSE.Row(qb, qrow, h)[0]), lse))
				total = n.add(total, n.scale(float64(g.Entropy.Row(qb, qrow, h)[0]), n.add(lse, n.scale(-1, mean))))
			}
		}
	}
	return total
}

// linearLoss computes dO.O of a row of a linear problem.
func linearLoss[T any](p *attn.Problem, a *attn.Args, n number[T], b, i, nk int, q []T, dout []float32, at func(j int) (k, v []T)) T {
	feature := func(x T) T {
		switch positive := n.value(x) > 0; {
		case p.Linear.Feature == attn.Identity:
			return x
		case positive:
			return n.add(x, n.of(1))
		case p.Linear.Feature == attn.EluPlusOne:
			return n.exp(x)
		}
		return n.of(1)
	}
	sum, den := n.of(0), n.of(p.Linear.Eps)
	lo, hi := a.Visible(p, b, i)
	if lo >= hi {
		return sum
	}
	for j := lo; j < hi; j++ {
		k, v := at(j)
		w := n.of(0)
		for c := range q {
			w = n.add(w, n.mul(feature(q[c]), feature(k[c])))
		}
		den = n.add(den, w)
		for c, x := range v {
			sum = n.add(sum, n.scale(float64(dout[c]), n.mul(w, x)))
		}
	}
	if p.Linear.Unnormalised {
		return n.scale(p.Scale(), sum)
	}
	return n.mul(sum, n.inv(den))
}

// inputs calls f with each operand under the name of its gradient, in the order of cases.Rows.
func inputs(p *attn.Problem, a *attn.Args, g *attn.Grads, f func(name string, t *attn.Tensor)) {
	row := func(x []float32) *attn.Tensor { return &attn.Tensor{Data: x, B: 1, S: 1, H: 1, D: len(x)} }
	for name, t := range map[string]*attn.Tensor{
		"dQ": &a.Q, "dK": &a.K, "dV": &a.V, "dBias": &a.Terms.Bias, "dRelative": &a.Terms.Relative, "dMetric": &a.Terms.Metric,
		"dSlopes": row(a.Terms.Slopes), "dSinks": row(a.Terms.Sinks),
	} {
		if t.Size() > 0 {
			f(name, t)
		}
	}
}

// TestGradientsAgainstDuals checks gradients against forward-mode dual numbers. They give the
// derivative by one number of an operand at a time, to the last digits of float64.
func TestGradientsAgainstDuals(t *testing.T) {
	for name, set := range small {
		t.Run(name, func(t *testing.T) {
			p, a, g := smallCall(t, set)
			want := answers(t, p, a, g)
			inputs(&p, a, g, func(name string, x *attn.Tensor) {
				n := 0
				cases.Rows(x, func(b, s, h int, row []float32) {
					for c := range row {
						element := b*x.SB + s*x.SS + h*x.SH + c
						l := loss(&p, a, g, duals, func(operand string, e int, v float32) dual.Number {
							d := dual.Number{Real: float64(v)}
							if operand == name && e == element {
								d.Emag = 1
							}
							return d
						})
						if got := want[name][n]; !(math.Abs(got-l.Emag) <= 1e-12*max(1, math.Abs(l.Emag))) {
							t.Fatalf("%s[%d, %d, %d, %d]: the oracle says %v, dual numbers %v", name, b, s, h, c, got, l.Emag)
						}
						n++
					}
				})
				if n != len(want[name]) || n == 0 {
					t.Errorf("%s: %d numbers, the oracle gave %d", name, n, len(want[name]))
				}
			})
		})
	}
}

// TestGradientsAgainstDifferences checks gradients of all operands at once against central
// differences, to fewer digits.
func TestGradientsAgainstDifferences(t *testing.T) {
	for name, set := range small {
		t.Run(name, func(t *testing.T) {
			p, a, g := smallCall(t, set)
			want := answers(t, p, a, g)
			inputs(&p, a, g, func(name string, x *attn.Tensor) {
				var at []float64
				place := map[int]int{} // index of each element among the elements of the rows
				cases.Rows(x, func(b, s, h int, row []float32) {
					for c, v := range row {
						place[b*x.SB+s*x.SS+h*x.SH+c] = len(at)
						at = append(at, float64(v))
					}
				})
				f := func(moved []float64) float64 {
					return loss(&p, a, g, reals, func(operand string, e int, v float32) float64 {
						if operand == name {
							return moved[place[e]]
						}
						return float64(v)
					})
				}
				for i, d := range fd.Gradient(nil, f, at, &fd.Settings{Formula: fd.Central}) {
					if got := want[name][i]; !(math.Abs(got-d) <= 2e-8*max(1, math.Abs(d))) {
						t.Errorf("%s: number %d: the oracle says %v, central differences %v", name, i, got, d)
					}
				}
			})
		})
	}
}

// TestSecondDerivatives checks the second derivatives of the softmax by hyper-dual numbers. Its
// weights give them in closed form:
//
//	∂²p_i/∂z_j∂z_k = p_i ((δ_ij - p_j)(δ_ik - p_k) - p_j(δ_jk - p_k))
//	∂²LSE/∂z_j∂z_k = p_j(δ_jk - p_k)
func TestSecondDerivatives(t *testing.T) {
	p := attn.Problem{Batch: 1, SeqQ: 1, SeqKV: 5, HeadsQ: 1, HeadsKV: 1, Dim: 1, DimV: 1, Score: attn.Score{Scale: 1}, Want: attn.WantLSE}
	a, err := cases.NewArgs(p, "bhsd", nil)
	if err != nil {
		t.Fatal(err)
	}
	a.Q.Data[0] = 1
	z := []float32{0.5, -1.25, 2, 0, 0.75}
	copy(a.K.Data, z)
	o, err := oracle.New(p, a)
	if err != nil {
		t.Fatal(err)
	}
	w := o.Row(oracle.Index{}).Weights
	delta := func(i, j int) float64 {
		if i == j {
			return 1
		}
		return 0
	}
	for j := range z {
		for k := range z {
			var sum hyperdual.Number
			e := make([]hyperdual.Number, len(z))
			for i, x := range z {
				e[i] = hyperdual.Exp(hyperdual.Number{Real: float64(x), E1mag: delta(i, j), E2mag: delta(i, k)})
				sum = hyperdual.Add(sum, e[i])
			}
			if got, want := w[j]*(delta(j, k)-w[k]), hyperdual.Log(sum).E1E2mag; !(math.Abs(got-want) <= 1e-14) {
				t.Errorf("∂²LSE/∂z_%d∂z_%d: %v by the weights, %v by hyper-dual numbers", j, k, got, want)
			}
			for i := range z {
				got := w[i] * ((delta(i, j)-w[j])*(delta(i, k)-w[k]) - w[j]*(delta(j, k)-w[k]))
				if want := hyperdual.Mul(e[i], hyperdual.Inv(sum)).E1E2mag; !(math.Abs(got-want) <= 1e-14) {
					t.Errorf("∂²p_%d/∂z_%d∂z_%d: %v by the weights, %v by hyper-dual numbers", i, j, k, got, want)
				}
			}
		}
	}
}
