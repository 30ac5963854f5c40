package linear_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"attnlab/attn"
	"attnlab/attn/oracle"
	"attnlab/kernels/asm"
	"attnlab/kernels/asm/asmtest"
	"attnlab/kernels/linear"
)

// gradsOf returns random incoming gradients of a call, and places for all outgoing ones.
func gradsOf(p *attn.Problem, a *attn.Args) *attn.Grads {
	r := rand.New(rand.NewPCG(7, uint64(a.K.S)))
	like := func(t attn.Tensor) attn.Tensor {
		if t.Data == nil {
			return attn.Tensor{}
		}
		return attn.New(attn.BSHD, t.B, t.S, t.H, t.D)
	}
	g := &attn.Grads{Out: like(a.Out), Q: like(a.Q), K: like(a.K), V: like(a.V)}
	g.Terms.Decay, g.Terms.Beta = like(a.Terms.Decay), like(a.Terms.Beta)
	g.StateIn, g.StateOut = make([]float32, p.StateLen()), make([]float32, p.StateLen())
	for _, x := range [][]float32{g.Out.Data, g.StateOut} {
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
	}
	return g
}

// differentiate computes a call and its backward pass.
func differentiate(t *testing.T, ops *asm.Ops, team *attn.Team, p attn.Problem, a *attn.Args, g *attn.Grads) {
	t.Helper()
	plan, err := linear.New(ops).Plan(p, team)
	if err != nil {
		t.Fatal(err)
	}
	plan.Forward(a)
	plan.(attn.Differentiable).Backward(a, g)
}

// judgeGrads compares all gradients of a call with the definition.
func judgeGrads(t *testing.T, p attn.Problem, a *attn.Args, g *attn.Grads) {
	t.Helper()
	o, err := oracle.New(p, a)
	if err != nil {
		t.Fatal(err)
	}
	v, err := o.JudgeGrads(g)
	if err != nil {
		t.Fatal(err)
	}
	if !(v.Worst <= 1) {
		t.Errorf("%.3g of the tolerance: %s", v.Worst, v.Where)
	} else {
		t.Logf("%.3g of the tolerance; %d of %d numbers judged", v.Worst, v.Judged, v.Numbers)
	}
}

// TestRuleGradients checks the gradients of every rule, over numbers of tokens that cross chunks
// and segments.
func TestRuleGradients(t *testing.T) {
	for _, l := range asmtest.All(t) {
		for rule := range rules {
			for _, n := range []int{1, 3, 31, 32, 37, 67, 200} {
				t.Run(fmt.Sprintf("%s/%s/n=%d", l.Name, rules[rule].name, n), func(t *testing.T) {
					p, a := ruled(rule, n, 17, 23)
					p.Linear.Snapshots = 0
					a.StateOut = make([]float32, p.StateLen())
					p.Want |= attn.WantGrad
					g := gradsOf(&p, a)
					differentiate(t, l.Ops, nil, p, a, g)
					judgeGrads(t, p, a, g)
				})
			}
		}
	}
}

// TestGatesOfGradients checks gradients with gates that cut chunks, that forget everything, and
// that grow the state.
func TestGatesOfGradients(t *testing.T) {
	gates := []struct {
		name string
		gate func(i int, r *rand.Rand) float64
	}{
		{"steep", func(int, *rand.Rand) float64 { return -20 }},
		{"any", func(_ int, r *rand.Rand) float64 { return -20 * r.Float64() }},
		{"spikes", func(i int, r *rand.Rand) float64 {
			if i/3%16 == 5 && i%2 == 0 {
				return -70
			}
			return -r.Float64() / 16
		}},
		{"-200", func(i int, r *rand.Rand) float64 { return -200 * float64(i/5%4/3) }},
		{"-Inf", func(i int, r *rand.Rand) float64 {
			if i/7%11 == 10 {
				return math.Inf(-1)
			}
			return -r.Float64()
		}},
		{"growing", func(_ int, r *rand.Rand) float64 { return r.Float64()/20 - .01 }},
	}
	for _, l := range asmtest.All(t) {
		for rule := range rules {
			for _, gate := range gates {
				p, a := ruled(rule, 70, 9, 11)
				if p.Linear.Gate == attn.NoGate || p.Linear.Snapshots > 0 {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%s", l.Name, rules[rule].name, gate.name), func(t *testing.T) {
					r := rand.New(rand.NewPCG(1, 2))
					for i := range a.Terms.Decay.Data {
						a.Terms.Decay.Data[i] = float32(gate.gate(i, r))
					}
					p.Want |= attn.WantGrad
					g := gradsOf(&p, a)
					differentiate(t, l.Ops, nil, p, a, g)
					judgeGrads(t, p, a, g)
				})
			}
		}
	}
}

// TestGradientsNotFinite checks that numbers that are not finite reach the gradients that the
// definition gives them, and no others. Without a rule, infinities of both signs may meet: pairs of
// tokens are weighed one by one there.
func TestGradientsNotFinite(t *testing.T) {
	for _, l := range asmtest.All(t) {
		for rule := range rules {
			for of := range 5 {
				p, a := ruled(rule, 70, 9, 11)
				at := []*attn.Tensor{&a.Q, &a.K, &a.V, &a.Terms.Decay, &a.Terms.Beta}[of]
				if p.Linear.Snapshots > 0 || at.Data == nil {
					continue
				}
				for _, x := range []float64{math.NaN(), math.Inf(1)} {
					if math.IsInf(x, 0) && !p.Rule() {
						continue
					}
					t.Run(fmt.Sprintf("%s/%s/%d/%v", l.Name, rules[rule].name, of, x), func(t *testing.T) {
						at.Row(0, 40, 0)[0] = float32(x)
						p.Want |= attn.WantGrad
						g := gradsOf(&p, a)
						differentiate(t, l.Ops, nil, p, a, g)
						judgeGrads(t, p, a, g)
					})
				}
			}
		}
	}
}

// TestGradientsOfThreads checks that gradients have the same bits at any number of threads, also
// where heads share one, and that a backward pass allocates nothing.
func TestGradientsOfThreads(t *testing.T) {
	l := asmtest.All(t)[0]
	team := attn.NewTeam(3)
	defer team.Close()
	for rule := range rules {
		for _, shared := range []bool{false, true} {
			p, a := ruled(rule, 70, 9, 11)
			if shared && !p.Linear.Delta || p.Linear.Snapshots > 0 {
				continue
			}
			if shared {
				a.Terms.Beta = attn.New(attn.BSHD, a.K.B, a.K.S, 1, 1)
				for i := range a.Terms.Beta.Data {
					a.Terms.Beta.Data[i] = float32(i%7) / 7
				}
			}
			p.Want |= attn.WantGrad
			one, three := gradsOf(&p, a), gradsOf(&p, a)
			differentiate(t, l.Ops, nil, p, a, one)
			differentiate(t, l.Ops, team, p, a, three)
			same := func(name string, x, y []float32) {
				for i := range x {
					if math.Float32bits(x[i]) != math.Float32bits(y[i]) {
						t.Fatalf("%s: %s[%d] is %v with one thread and %v with three", rules[rule].name, name, i, x[i], y[i])
					}
				}
			}
			same("dQ", one.Q.Data, three.Q.Data)
			same("dK", one.K.Data, three.K.Data)
			same("dV", one.V.Data, three.V.Data)
			same("dDecay", one.Terms.Decay.Data, three.Terms.Decay.Data)
			same("dBeta", one.Terms.Beta.Data, three.Terms.Beta.Data)
			same("dStateIn", one.StateIn, three.StateIn)
			judgeGrads(t, p, a, one)

			plan, err := linear.New(l.Ops).Plan(p, nil)
			if err != nil {
				t.Fatal(err)
			}
			plan.Forward(a)
			if n := testing.AllocsPerRun(2, func() { plan.(attn.Differentiable).Backward(a, one) }); n != 0 {
				t.Errorf("%s: %v allocations in a backward pass", rules[rule].name, n)
			}
		}
	}
}

// TestSomeGradients checks that a gradient has the same bits when no other is wanted, and that
// either incoming gradient may be missing.
func TestSomeGradients(t *testing.T) {
	ops := asmtest.All(t)[0].Ops
	for rule := range rules {
		p, a := ruled(rule, 70, 9, 11)
		if p.Linear.Snapshots > 0 {
			continue
		}
		p.Want |= attn.WantGrad
		all := gradsOf(&p, a)
		differentiate(t, ops, nil, p, a, all)
		for i, whole := range outgoing(all) {
			some := gradsOf(&p, a)
			for j, x := range outgoing(some) {
				if i != j {
					*x = attn.Tensor{}
				}
			}
			some.StateIn = nil
			differentiate(t, ops, nil, p, a, some)
			got := outgoing(some)[i]
			for j, x := range whole.Data {
				if math.Float32bits(x) != math.Float32bits(got.Data[j]) {
					t.Fatalf("%s: gradient %d, element %d is %v, and %v with all others", rules[rule].name, i, j, got.Data[j], x)
				}
			}
		}
		noOut, noState := gradsOf(&p, a), gradsOf(&p, a)
		noOut.Out, noState.StateOut = attn.Tensor{}, nil
		for _, g := range []*attn.Grads{noOut, noState} {
			differentiate(t, ops, nil, p, a, g)
			judgeGrads(t, p, a, g)
		}
	}
}

func outgoing(g *attn.Grads) []*attn.Tensor {
	return []*attn.Tensor{&g.Q, &g.K, &g.V, &g.Terms.Decay, &g.Terms.Beta}
}

// TestGradientsOfNothing checks calls without tokens, channels or columns.
func TestGradientsOfNothing(t *testing.T) {
	for _, l := range asmtest.All(t) {
		for rule := range rules {
			for _, size := range [][3]int{{0, 5, 4}, {40, 0, 4}, {40, 5, 0}} {
				p, a := ruled(rule, size[0], size[1], size[2])
				if p.Linear.Snapshots > 0 || p.Dim == 0 && p.Linear.Eps == 0 && !p.Linear.Unnormalised {
					continue // the latter's outputs are 0/0
				}
				t.Run(fmt.Sprintf("%s/%s/%v", l.Name, rules[rule].name, size), func(t *testing.T) {
					p.Want |= attn.WantGrad
					g := gradsOf(&p, a)
					differentiate(t, l.Ops, nil, p, a, g)
					judgeGrads(t, p, a, g)
				})
			}
		}
	}
}
