package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/kernels/asm"
)

// altered is a layer whose passes have a bug.
type altered struct {
	Layer
	change func(on On, p Pass) Pass
}

func (a altered) Plan(on On, in Shape) (Pass, int, error) {
	p, dim, err := a.Layer.Plan(on, in)
	if err != nil {
		return nil, 0, err
	}
	return a.change(on, p), dim, nil
}

// instead is a layer that runs as another layer.
type instead struct {
	Layer
	other Layer
}

func (i instead) Plan(on On, in Shape) (Pass, int, error) { return i.other.Plan(on, in) }

// through is a layer on another kernel.
type through struct {
	Layer
	wrap func(attn.Kernel) attn.Kernel
}

func (k through) Plan(on On, in Shape) (Pass, int, error) {
	on.Kernel = k.wrap(on.Kernel)
	return k.Layer.Plan(on, in)
}

// wrongPass is a pass with another Forward or Backward.
type wrongPass struct {
	Pass
	forward, backward func(Mat) Mat
}

func (p wrongPass) Forward(x Mat) Mat {
	if p.forward != nil {
		return p.forward(x)
	}
	return p.Pass.Forward(x)
}

func (p wrongPass) Backward(dy Mat) Mat {
	if p.backward != nil {
		return p.backward(dy)
	}
	return p.Pass.Backward(dy)
}

// untrained returns a layer that leaves a parameter without its gradient.
func untrained(l Layer, p *Param) Layer {
	return altered{l, func(_ On, pass Pass) Pass {
		return wrongPass{Pass: pass, backward: func(dy Mat) Mat {
			keep := slices.Clone(p.Grad.Data)
			dx := pass.Backward(dy)
			copy(p.Grad.Data, keep)
			return dx
		}}
	}}
}

// transposed multiplies by the transpose of a square W: forward, backward, or both.
type transposed struct {
	*linearPass
	forward, back bool
}

func (p transposed) Forward(x Mat) Mat {
	if !p.forward {
		return p.linearPass.Forward(x)
	}
	p.x = x
	y := p.y.First(x.Rows)
	p.on.Products.Do(Product{C: y, A: x, B: p.layer.W.W, BT: true})
	if b := p.layer.B; b != nil {
		for i := range y.Rows {
			add(y.Row(i), b.W.Row(0))
		}
	}
	return y
}

func (p transposed) Backward(dy Mat) Mat {
	dx := p.linearPass.Backward(dy)
	if p.back {
		p.on.Products.Do(Product{C: dx, A: dy, B: p.layer.W.W})
	}
	return dx
}

// stacked is a kernel that assumes heads one after another, [head][row], when they are side by
// side: a split that forgets to exchange two axes.
type stacked struct{ attn.Kernel }

func (k stacked) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	plan, err := k.Kernel.Plan(p, team)
	if err != nil {
		return nil, err
	}
	return stackedPlan{plan.(attn.Differentiable)}, nil
}

type stackedPlan struct{ attn.Differentiable }

func (p stackedPlan) Forward(a *attn.Args) {
	wrong := *a
	for _, t := range []*attn.Tensor{&wrong.Q, &wrong.K, &wrong.V, &wrong.Out} {
		t.SS, t.SH = t.D, t.S*t.D
	}
	p.Differentiable.Forward(&wrong)
}

// TestMutants checks that the check for all layers finds every bug, and names the place of the bug.
func TestMutants(t *testing.T) {
	ops := asm.Levels()[0].Ops
	r := rand.New(rand.NewPCG(61, 1))
	in := Shape{2, 5, 8}

	linear := NewLinear("l", 8, 8, true, r)
	linear.B.Normal(r, 1)
	norm, second := NewLayerNorm("n", 8), NewLinear("m", 8, 8, true, r)
	for _, p := range norm.Params() {
		p.Normal(r, 1)
	}
	attention, err := NewAttention("a", 8, 4, 2, true, r)
	if err != nil {
		t.Fatal(err)
	}
	attention.Mask = attn.Causal()
	for _, l := range []*Linear{attention.Q, attention.K, attention.V, attention.Out} {
		l.B.Normal(r, 0.5)
	}
	experts, err := NewExperts("e", 8, 4, 2, func(i int) Layer { return NewLinear(fmt.Sprint("e", i), 8, 3, true, r) }, r)
	if err != nil {
		t.Fatal(err)
	}
	experts.Renormalise = true
	experts.Gate.W.Normal(r, 1)
	gated := Gated{Chain{linear, SiLU}, second}
	residual := Residual{linear}

	linearLike, normLike, attentionLike, expertsLike := linearTwin(linear), normTwin(norm), attentionTwin(attention, in, nil), expertsTwin(experts)
	gatedLike := both(then(linearTwin(linear), activationTwin(SiLU)), linearTwin(second), times)
	geluLike, residualLike := activationTwin(GELU), both(identity, linearTwin(linear), plus)

	unmasked, hotter, shared := *attention, *attention, *attention
	unmasked.Mask = attn.Full()
	hotter.Score.Scale = 0.5 // 1/d, where 1/sqrt(d) is right
	shared.K = &Linear{W: attention.Q.W, B: attention.Q.B}
	shared.KVHeads, shared.V = 4, attention.Q
	other := func() *Attention {
		l, err := NewAttention("a", 8, 4, 2, true, rand.New(rand.NewPCG(61, 2)))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	fused, exchanged := other(), other()
	exchanged.K, exchanged.V = exchanged.V, exchanged.K
	fused.Fuse()
	exchanged.Fuse()
	cross, memory := other(), NewParam("memory", 2*6, 8).Normal(r, 1)
	cross.Cross = true
	decoder := withMemory{cross, memory}
	smooth := *norm
	smooth.Eps = 1e-2

	whileBack := func(p Pass, set, restore func()) Pass {
		return wrongPass{Pass: p, backward: func(dy Mat) Mat {
			set()
			defer restore()
			return p.Backward(dy)
		}}
	}
	for _, test := range []struct {
		name  string
		right Layer // passes the check
		wrong Layer
		like  twin
		want  string // the beginning of the error
	}{
		{"a bias has no gradient", linear, untrained(linear, linear.B), linearLike, "gradient by l.b: "},
		{"weights have no gradient", linear, untrained(linear, linear.W), linearLike, "gradient by l.w: "},
		{"gradients are not added but stored", linear, altered{linear, func(_ On, p Pass) Pass {
			return wrongPass{Pass: p, backward: func(dy Mat) Mat {
				ClearGrads(linear.Params())
				return p.Backward(dy)
			}}
		}}, linearLike, "a second pass besides, l.w: "},
		{"a weight is left out", linear, altered{linear, func(_ On, p Pass) Pass {
			return wrongPass{Pass: p, forward: func(x Mat) Mat {
				y := p.Forward(x)
				for i := range y.Rows {
					y.Row(i)[7] -= x.Row(i)[7] * linear.W.W.Row(7)[7]
				}
				return y
			}}
		}}, linearLike, "output: "},
		{"two workers do something else", linear, altered{linear, func(on On, p Pass) Pass {
			return wrongPass{Pass: p, forward: func(x Mat) Mat {
				y := p.Forward(x)
				if on.Products.team.Workers() > 1 {
					y.Row(9)[0] = math.Nextafter32(y.Row(9)[0], 9)
				}
				return y
			}}
		}}, linearLike, "output 9, 0 is "},
		{"a pass allocates", linear, altered{linear, func(_ On, p Pass) Pass {
			return wrongPass{Pass: p, backward: func(dy Mat) Mat {
				dx := NewMat(dy.Rows, 8)
				copy(dx.Data, p.Backward(dy).Data)
				return dx
			}}
		}}, linearLike, " allocations a pass"},

		{"heads lie one after another", attention, through{attention, func(k attn.Kernel) attn.Kernel { return stacked{k} }}, attentionLike, "output: "},
		{"W_O is transposed", attention, altered{attention, func(_ On, p Pass) Pass {
			a := p.(*AttentionPass)
			a.out = transposed{a.out.(*linearPass), true, true}
			return a
		}}, attentionLike, "output: "},
		{"W_O is transposed on the way back", attention, altered{attention, func(_ On, p Pass) Pass {
			a := p.(*AttentionPass)
			a.out = transposed{a.out.(*linearPass), false, true}
			return a
		}}, attentionLike, "gradient by the input: "},
		{"the bias of W_O has no gradient", attention, untrained(attention, attention.Out.B), attentionLike, "gradient by a.o.b: "},
		{"the bias of W_V has no gradient", attention, untrained(attention, attention.V.B), attentionLike, "gradient by a.v.b: "},
		{"the mask is forgotten", attention, &unmasked, attentionLike, "output: "},
		{"scores are divided by d", attention, &hotter, attentionLike, "output: "},
		{"keys and values are the queries", attention, instead{attention, &shared}, attentionLike, "output: "},
		{"x has no gradient as keys and values", attention, altered{attention, func(_ On, p Pass) Pass {
			a := p.(*AttentionPass)
			return wrongPass{Pass: p, backward: func(dy Mat) Mat {
				p.Backward(dy)
				return a.q.Backward(a.gq)
			}}
		}}, attentionLike, "gradient by the input: "},
		{"fused, keys and values change places", fused, instead{fused, exchanged}, attentionTwin(fused, in, nil), "output: "},
		{"fused, keys have no gradient", fused, altered{fused, func(_ On, p Pass) Pass {
			a := p.(*AttentionPass)
			a.gk = NewMat(a.gk.Rows, a.gk.Cols) // not part of the fused gradient
			return a
		}}, attentionTwin(fused, in, nil), "gradient by the input: "},
		{"what cross-attention looks at has no gradient", decoder, untrained(decoder, memory), attentionTwin(cross, in, memory), "gradient by memory: "},
		{"only one thing that looks at it has its gradient", decoder, altered{decoder, func(_ On, p Pass) Pass {
			return wrongPass{Pass: p, backward: func(dy Mat) Mat {
				memory.Grad.Clear()
				return p.Backward(dy)
			}}
		}}, attentionTwin(cross, in, memory), "a second pass besides, memory: "},
		{"cross-attention looks at itself", decoder, altered{decoder, func(_ On, p Pass) Pass {
			a := p.(*AttentionPass)
			return wrongPass{Pass: p, forward: func(x Mat) Mat {
				a.memory = &Param{W: x, Grad: NewMat(x.Rows, x.Cols)}
				return p.Forward(x)
			}}
		}}, attentionTwin(cross, in, memory), "output: "},

		{"gradients leak to experts that were not chosen", experts, altered{experts, func(_ On, p Pass) Pass {
			e, raw := p.(*ExpertsPass), *experts
			raw.Renormalise = false // then all gates affect the weights of the chosen
			return whileBack(p, func() { e.layer = &raw }, func() { e.layer = experts })
		}}, expertsLike, "gradient by the input: "},
		{"the gate has no gradient", experts, untrained(experts, experts.Gate.W), expertsLike, "gradient by e.gate.w: "},
		{"gates are taken to be constant", experts, altered{experts, func(_ On, p Pass) Pass {
			e := p.(*ExpertsPass)
			all := slices.Clone(e.all)
			return whileBack(p, func() {
				copy(all, e.all)
				clear(e.all)
				e.layer = &Experts{Gate: experts.Gate, Layers: experts.Layers, Top: 2}
			},
				func() { copy(e.all, all); e.layer = experts })
		}}, expertsLike, "gradient by the input: "},

		{"the mean of a row is taken to be constant", norm, altered{norm, func(_ On, p Pass) Pass {
			n, raw := p.(*NormPass), *norm
			raw.Centred = false
			return whileBack(p, func() { n.layer = &raw }, func() { n.layer = norm })
		}}, normLike, "gradient by the input: "},
		{"another eps", norm, &smooth, normLike, "output: "},
		{"the bias of a norm has no gradient", norm, untrained(norm, norm.Bias), normLike, "gradient by n.bias: "},

		{"nothing goes back past a residual's layer", residual, altered{residual, func(_ On, p Pass) Pass {
			return wrongPass{Pass: p, backward: p.(*residualPass).inner.Backward}
		}}, residualLike, "gradient by the input: "},
		{"the derivative of another activation", GELU, altered{GELU, func(_ On, p Pass) Pass {
			a := p.(*activationPass)
			return whileBack(p, func() { a.f = SiLU }, func() { a.f = GELU })
		}}, geluLike, "gradient by the input: "},
		{"factors of a gate change places", gated, altered{gated, func(_ On, p Pass) Pass {
			g := p.(*gatedPass)
			change := func() { g.ya, g.yb = g.yb, g.ya }
			return whileBack(p, change, change)
		}}, gatedLike, "gradient by the input: "},
	} {
		if err := check(ops, test.right, in, test.like, map[*Param][][]float64{}); err != nil {
			t.Errorf("%s: without it: %v", test.name, err)
		}
		switch err := check(ops, test.wrong, in, test.like, map[*Param][][]float64{}); {
		case err == nil:
			t.Errorf("%s: not found", test.name)
		case !strings.Contains(err.Error(), test.want):
			t.Errorf("%s: found %q, want %q", test.name, err, test.want)
		}
	}
}
