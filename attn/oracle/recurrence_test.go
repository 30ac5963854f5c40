package oracle_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/num/dual"

	"attnlab/attn"
	"attnlab/attn/oracle"
)

// ruled are problems that together have every switch of a recurrence. The first function sets the
// problem, the second one changes the operands.
var ruled = []struct {
	name string
	set  func(p *attn.Problem)
	edit func(a *attn.Args)
}{
	{"plain", func(p *attn.Problem) { p.Linear = attn.Linear{Feature: attn.Identity, Unnormalised: true} }, nil},
	{"normalised", func(p *attn.Problem) { p.Linear = attn.Linear{} }, nil},
	{"eps", func(p *attn.Problem) { p.Linear = attn.Linear{Feature: attn.ReluPlusOne, Eps: 0.5} }, nil},
	{"head-gate", func(p *attn.Problem) { *p = attn.RetNet(*p) }, nil},
	{"head-gate-normalised", func(p *attn.Problem) { p.Linear = attn.Linear{Gate: attn.HeadGate, Eps: 0.25} }, nil},
	{"constant-gate", func(p *attn.Problem) { *p = attn.RetNet(*p) }, func(a *attn.Args) {
		d := &a.Terms.Decay
		*d = attn.ConstantDecay(attn.RetNetDecay(d.H), d.B, d.S)
	}},
	{"key-gate", func(p *attn.Problem) { *p = attn.GLA(*p) }, nil},
	{"delta", func(p *attn.Problem) { *p = attn.DeltaNet(*p) }, nil},
	{"gated-delta", func(p *attn.Problem) { *p = attn.GatedDelta(*p) }, nil},
	{"kda", func(p *attn.Problem) { *p = attn.KDA(*p) }, nil},
	{"delta-features", func(p *attn.Problem) {
		p.Linear = attn.Linear{Unnormalised: true, Delta: true, Norm: attn.NormMax, NormEps: 1e-3, Gate: attn.KeyGate}
		p.Score.Scale = 0.3
	}, func(a *attn.Args) {
		for i := range a.Terms.Beta.Data {
			a.Terms.Beta.Data[i] /= 8 // keys are longer than 1
		}
	}},
	{"short-rows", func(p *attn.Problem) {
		p.Linear = attn.Linear{Feature: attn.Identity, Unnormalised: true, Norm: attn.NormMax, NormEps: 10, Delta: true}
	}, nil},
	{"shared-beta", func(p *attn.Problem) { *p = attn.GatedDelta(*p) }, func(a *attn.Args) { a.Terms.Beta.H = 1 }},
	{"value-heads", func(p *attn.Problem) { p.HeadsQ, p.HeadsKV, p.Linear.HeadsV = 2, 2, 4; *p = attn.GatedDelta(*p) }, nil},
	{"few-query-heads", func(p *attn.Problem) { p.HeadsQ, p.HeadsKV, p.Linear.HeadsV = 1, 2, 4; *p = attn.KDA(*p) }, nil},
	{"one-value-head", func(p *attn.Problem) { p.HeadsQ, p.HeadsKV, p.Linear.HeadsV = 4, 2, 1; *p = attn.KDA(*p) }, nil},
	{"ragged", func(p *attn.Problem) { *p = attn.KDA(*p); p.Ragged, p.Batch = true, 3 }, nil},
	{"snapshots", func(p *attn.Problem) { *p = attn.GatedDelta(*p); p.Linear.Snapshots = 7 }, nil},
	{"reset", func(p *attn.Problem) { *p = attn.KDA(*p) }, func(a *attn.Args) {
		a.Terms.Decay.Row(0, 2, 0)[1] = float32(math.Inf(-1))
		a.Terms.Decay.Row(0, 3, 0)[0] = 0.5 // grows
	}},
}

// ruledCall lays out a call of a problem with a state, of n tokens in each sequence.
func ruledCall(p attn.Problem, seed uint64) *attn.Args {
	r := rand.New(rand.NewPCG(seed, 0x51))
	batch, rows := p.Batch, p.SeqKV
	a := &attn.Args{}
	if p.Ragged { // sequences of all rows, none, and half of them
		batch, rows = 1, p.SeqKV+p.SeqKV/2
		a.QStart = []int32{0, int32(p.SeqKV)}
		for len(a.QStart) < p.Batch {
			a.QStart = append(a.QStart, int32(p.SeqKV))
		}
		a.QStart = append(a.QStart[:p.Batch], int32(rows))
		a.KStart = a.QStart
	}
	normal := func(h, d int) attn.Tensor {
		t := attn.New(attn.BSHD, batch, rows, h, d)
		for i := range t.Data {
			t.Data[i] = float32(r.NormFloat64())
		}
		return t
	}
	a.Q, a.K, a.V = normal(p.HeadsQ, p.Dim), normal(p.HeadsKV, p.Dim), normal(p.ValueHeads(), p.DimV)
	a.Out = attn.New(attn.BHSD, batch, rows, p.OutHeads(), p.DimV)
	if p.Linear.Gate != attn.NoGate {
		width := 1
		if p.Linear.Gate == attn.KeyGate {
			width = p.Dim
		}
		a.Terms.Decay = normal(p.ValueHeads(), width)
		for i, x := range a.Terms.Decay.Data {
			a.Terms.Decay.Data[i] = -float32(math.Log1p(math.Exp(-float64(x))))
		}
	}
	if p.Linear.Delta {
		a.Terms.Beta = normal(p.ValueHeads(), 1)
		for i, x := range a.Terms.Beta.Data {
			a.Terms.Beta.Data[i] = float32(2 / (1 + math.Exp(-float64(x))))
		}
	}
	a.StateIn, a.StateOut = make([]float32, p.StateLen()), make([]float32, p.SnapshotLen())
	for i := range a.StateIn {
		a.StateIn[i] = float32(r.NormFloat64())
		if !p.Linear.Unnormalised { // z is a sum of positive features
			a.StateIn[i] = float32(math.Abs(float64(a.StateIn[i])))
		}
	}
	return a
}

// smallRuled lays out one of the problems at a small size.
func smallRuled(t *testing.T, i int) (attn.Problem, *attn.Args) {
	t.Helper()
	p := attn.Problem{Op: attn.OpLinear, Batch: 2, SeqQ: 6, SeqKV: 6, HeadsQ: 4, HeadsKV: 2, Dim: 4, DimV: 3, Mask: attn.Causal()}
	ruled[i].set(&p)
	a := ruledCall(p, uint64(i))
	if ruled[i].edit != nil {
		ruled[i].edit(a)
	}
	if err := p.Check(a); err != nil {
		t.Fatal(err)
	}
	return p, a
}

// A trace is the answer of a recurrence in some type of number: outputs by batch entry, output head
// and token, and the states of each sequence and state head before each token and after the last.
type trace[T any] struct {
	out    map[oracle.Index][]T
	states map[[2]int][][]T // rows of S, then z
}

// follow computes a recurrence from the conventions of package attn, in any type of number. It
// reads element e of an operand through at.
func follow[T any](p *attn.Problem, a *attn.Args, n number[T], at func(name string, e int, x float32) T) trace[T] {
	tr := trace[T]{map[oracle.Index][]T{}, map[[2]int][][]T{}}
	l, d, dv := p.Linear, p.Dim, p.DimV
	row := func(name string, t *attn.Tensor, b, s, h int) []T {
		off := b*t.SB + s*t.SS + h*t.SH
		x := make([]T, t.D)
		for c := range x {
			x[c] = at(name, off+c, t.Data[off+c])
		}
		return x
	}
	sqrt := func(x T) T { return n.exp(n.scale(0.5, n.log(x))) }
	phi := func(x []T) []T {
		sum := n.of(l.NormEps)
		if l.Norm == attn.NormMax {
			sum = n.of(0)
		}
		for _, x := range x {
			sum = n.add(sum, n.mul(x, x))
		}
		by := n.of(1)
		if l.Norm != attn.NoNorm {
			by = n.inv(sqrt(sum))
		}
		if l.Norm == attn.NormMax && n.value(sum) < l.NormEps*l.NormEps {
			by = n.of(1 / l.NormEps)
		}
		for c := range x {
			switch y := n.mul(x[c], by); {
			case l.Feature == attn.Identity:
				x[c] = y
			case n.value(y) > 0:
				x[c] = n.add(y, n.of(1))
			case l.Feature == attn.EluPlusOne:
				x[c] = n.exp(y)
			default:
				x[c] = n.of(1)
			}
		}
		return x
	}
	outs := p.OutHeads()
	states := max(p.HeadsKV, p.ValueHeads())
	for b := range p.Batch {
		for s := range states {
			S, z := make([]T, d*dv), make([]T, d)
			for i := range S {
				e := (b*states+s)*d*dv + i
				S[i] = at("dStateIn", e, a.StateIn[e])
			}
			for i := range z {
				if z[i] = n.of(0); !l.Unnormalised {
					e := p.Batch*states*d*dv + (b*states+s)*d + i
					z[i] = at("dStateIn", e, a.StateIn[e])
				}
			}
			keep := func() {
				tr.states[[2]int{b, s}] = append(tr.states[[2]int{b, s}], append(append([]T{}, S...), z...))
			}
			keep()
			for i := range a.Keys(p, b) {
				kb, kr := a.KRow(p, b, i)
				k := phi(row("dK", &a.K, kb, kr, s*p.HeadsKV/states))
				vh := s * p.ValueHeads() / states
				write := row("dV", &a.V, kb, kr, vh)
				if l.Gate != attn.NoGate {
					g := row("dDecay", &a.Terms.Decay, kb, kr, vh)
					for j := range d {
						alpha := n.exp(g[j%len(g)])
						if math.IsInf(n.value(g[j%len(g)]), -1) {
							alpha = n.of(0)
						}
						z[j] = n.mul(alpha, z[j])
						for c := range dv {
							S[j*dv+c] = n.mul(alpha, S[j*dv+c])
						}
					}
				}
				if l.Delta {
					beta := row("dBeta", &a.Terms.Beta, kb, kr, s*a.Terms.Beta.H/states)[0]
					for c := range dv {
						for j := range d {
							write[c] = n.add(write[c], n.scale(-1, n.mul(S[j*dv+c], k[j])))
						}
						write[c] = n.mul(beta, write[c])
					}
				}
				for j := range d {
					if z[j] = n.add(z[j], k[j]); l.Unnormalised {
						z[j] = n.of(0)
					}
					for c := range dv {
						S[j*dv+c] = n.add(S[j*dv+c], n.mul(k[j], write[c]))
					}
				}
				keep()
				for h := s * outs / states; h < (s+1)*outs/states; h++ {
					qb, qr := a.QRow(p, b, i)
					q := phi(row("dQ", &a.Q, qb, qr, h*p.HeadsQ/outs))
					o, den := make([]T, dv), n.of(l.Eps)
					for c := range o {
						o[c] = n.of(0)
					}
					for j := range d {
						den = n.add(den, n.mul(z[j], q[j]))
						for c := range dv {
							o[c] = n.add(o[c], n.mul(S[j*dv+c], q[j]))
						}
					}
					for c := range o {
						if l.Unnormalised {
							o[c] = n.scale(p.Scale(), o[c])
						} else {
							o[c] = n.mul(o[c], n.inv(den))
						}
					}
					tr.out[oracle.Index{B: b, H: h, I: i}] = o
				}
			}
		}
	}
	return tr
}

// plain reads an operand as it is.
func plain(_ string, _ int, x float32) float64 { return float64(x) }

// TestRecurrence checks outputs and states of every switch against a second implementation.
func TestRecurrence(t *testing.T) {
	for i, c := range ruled {
		t.Run(c.name, func(t *testing.T) {
			p, a := smallRuled(t, i)
			tr := follow(&p, a, reals, plain)
			o, err := oracle.New(p, a)
			if err != nil {
				t.Fatal(err)
			}
			rows := oracle.All(&p, a)
			if len(rows) != len(tr.out) {
				t.Fatalf("%d rows, want %d", len(rows), len(tr.out))
			}
			for _, at := range rows {
				r := o.Row(at)
				for c, want := range tr.out[at] {
					near(t, fmt.Sprintf("Out%v[%d]", at, c), r.Out[c], want, 1e-12*max(1, math.Abs(want)))
					a.Out.Row(tensorRow(&p, a, at))[c] = float32(want)
				}
			}
			fillStates(&p, a, tr)
			if v := o.Judge(rows); !(v.Worst <= 0.5) || v.Judged != v.Numbers {
				t.Errorf("the definition, rounded, is %.2g of its tolerance; %d of %d numbers judged: %s", v.Worst, v.Judged, v.Numbers, v.Where)
			}
			answers := o.Answers(rows)
			for i := range a.StateOut {
				x := a.StateOut[i]
				a.StateOut[i] += 1e-3 + 1e-3*x
				if v := answers.Judge(a); !(v.Worst > 1) {
					t.Fatalf("number %d of StateOut may be %v in place of %v", i, a.StateOut[i], x)
				}
				a.StateOut[i] = x
			}
		})
	}
}

// tensorRow returns the batch, the row and the head of Out that hold a row.
func tensorRow(p *attn.Problem, a *attn.Args, at oracle.Index) (b, s, h int) {
	b, s = a.QRow(p, at.B, at.I)
	return b, s, at.H
}

// fillStates writes the states of a trace to StateOut.
func fillStates(p *attn.Problem, a *attn.Args, tr trace[float64]) {
	d, dv, heads := p.Dim, p.DimV, p.StateHeads()
	for slot := range max(1, p.Linear.Snapshots) {
		to := a.StateOut[slot*p.StateLen():][:p.StateLen()]
		for at, states := range tr.states {
			head := at[0]*heads + at[1]
			for i, x := range states[max(0, len(states)-1-slot)] {
				switch {
				case i < d*dv:
					to[head*d*dv+i] = float32(x)
				case !p.Linear.Unnormalised:
					to[p.Batch*heads*d*dv+head*d+i-d*dv] = float32(x)
				}
			}
		}
	}
}

// TestRecurrenceIsLinear checks that a problem without a rule has the same outputs and gradients
// with a state as without, where the definition is a sum over pairs.
func TestRecurrenceIsLinear(t *testing.T) {
	for _, l := range []attn.Linear{
		{},
		{Eps: 0.5},
		{Feature: attn.ReluPlusOne},
		{Feature: attn.Identity, Unnormalised: true},
		{Norm: attn.NormSum, NormEps: 1e-6},
		{Norm: attn.NormMax, NormEps: 3, Unnormalised: true},
		{HeadsV: 8},
		{HeadsV: 1},
	} {
		for _, ragged := range []bool{false, true} {
			p := attn.Problem{Op: attn.OpLinear, Batch: 2, SeqQ: 9, SeqKV: 9, HeadsQ: 4, HeadsKV: 2, Dim: 5, DimV: 3, Mask: attn.Causal(), Linear: l, Ragged: ragged, Want: attn.WantGrad}
			a := ruledCall(p, 3)
			a.StateIn = nil
			stateless := *a
			stateless.StateOut = nil
			with, err := oracle.New(p, a)
			if err != nil {
				t.Fatal(err)
			}
			without, err := oracle.New(p, &stateless)
			if err != nil {
				t.Fatal(err)
			}
			for _, at := range oracle.All(&p, a) {
				x, y := with.Row(at), without.Row(at)
				if x.Visible != y.Visible {
					t.Errorf("%+v: row %v sees %d keys, want %d", l, at, x.Visible, y.Visible)
				}
				for c := range x.Out {
					near(t, fmt.Sprintf("%+v: Out%v[%d]", l, at, c), x.Out[c], y.Out[c], 1e-13*max(1, math.Abs(y.Out[c])))
				}
			}
			g := ruledGrads(p, a, 4)
			g.StateIn, g.StateOut = nil, nil
			gradients := func(o *oracle.Oracle) map[string][]float64 {
				all := map[string][]float64{}
				if _, err := o.EachGrad(g, func(name string, at oracle.Index, _ []float32, want, _ []float64) {
					all[fmt.Sprint(name, at)] = slices.Clone(want)
				}); err != nil {
					t.Fatal(err)
				}
				return all
			}
			x, y := gradients(with), gradients(without)
			if len(x) != len(y) || len(x) == 0 {
				t.Errorf("%+v: %d rows of gradients with a state, %d without", l, len(x), len(y))
			}
			for at, want := range y {
				for c, want := range want {
					near(t, fmt.Sprintf("%+v: %s[%d]", l, at, c), x[at][c], want, 1e-12*max(1, math.Abs(want)))
				}
			}
		}
	}
}

// ruledGrads lays out random incoming gradients and all outgoing ones.
func ruledGrads(p attn.Problem, a *attn.Args, seed uint64) *attn.Grads {
	r := rand.New(rand.NewPCG(seed, 0x96))
	like := func(t *attn.Tensor) attn.Tensor { return attn.New(attn.BHSD, t.B, t.S, t.H, t.D) }
	g := &attn.Grads{Out: like(&a.Out), Q: like(&a.Q), K: like(&a.K), V: like(&a.V), StateIn: make([]float32, p.StateLen()), StateOut: make([]float32, p.StateLen())}
	if p.Linear.Gate != attn.NoGate {
		g.Terms.Decay = like(&a.Terms.Decay)
	}
	if p.Linear.Delta {
		g.Terms.Beta = like(&a.Terms.Beta)
	}
	for _, x := range [][]float32{g.Out.Data, g.StateOut} {
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
	}
	return g
}

// TestRecurrenceGradients checks the gradients of every switch against forward-mode dual numbers.
func TestRecurrenceGradients(t *testing.T) {
	for i, c := range ruled {
		t.Run(c.name, func(t *testing.T) {
			p, a := smallRuled(t, i)
			if p.Linear.Snapshots > 1 {
				t.Skip("a backward pass has one state")
			}
			p.Want = attn.WantGrad
			g := ruledGrads(p, a, uint64(i))
			for name, got := range gradientsByElement(t, p, a, g) {
				for e, got := range got {
					l := ruledLoss(&p, a, g, func(operand string, at int, x float32) dual.Number {
						d := dual.Number{Real: float64(x)}
						if operand == name && at == e {
							d.Emag = 1
						}
						return d
					})
					if !(math.Abs(got-l.Emag) <= 1e-11*max(1, math.Abs(l.Emag))) {
						t.Fatalf("%s: number %d: the oracle says %v, dual numbers %v", name, e, got, l.Emag)
					}
				}
			}
			perturbGrads(t, p, a, g)
		})
	}
}

// perturbGrads checks that the oracle accepts its own gradients, and no other ones.
func perturbGrads(t *testing.T, p attn.Problem, a *attn.Args, g *attn.Grads) {
	t.Helper()
	o, err := oracle.New(p, a)
	if err != nil {
		t.Fatal(err)
	}
	var all []*float32
	if _, err := o.EachGrad(g, func(_ string, _ oracle.Index, got []float32, want, _ []float64) {
		for c, x := range want {
			got[c] = float32(x)
			all = append(all, &got[c])
		}
	}); err != nil {
		t.Fatal(err)
	}
	judge := func() oracle.Verdict {
		v, err := o.JudgeGrads(g)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := judge(); !(v.Worst <= 0.5) || v.Judged != v.Numbers || v.Numbers != len(all) || v.Rows != len(oracle.All(&p, a)) {
		t.Errorf("the definition, rounded, is %.2g of its tolerance; %d of %d numbers judged, %d rows: %s", v.Worst, v.Judged, v.Numbers, v.Rows, v.Where)
	}
	for _, x := range all {
		right := *x
		*x += 0.05 * (1 + right*right)
		if v := judge(); !(v.Worst > 1) {
			t.Fatalf("a gradient may be %v in place of %v", *x, right)
		}
		*x = right
	}
}

// ruledLoss computes Σ dO.O + Σ dStateOut.StateOut.
func ruledLoss(p *attn.Problem, a *attn.Args, g *attn.Grads, at func(name string, e int, x float32) dual.Number) dual.Number {
	tr, total := follow(p, a, duals, at), dual.Number{}
	for at, o := range tr.out {
		b, s, h := tensorRow(p, a, at)
		for c, x := range o {
			total = dual.Add(total, dual.Scale(float64(g.Out.Row(b, s, h)[c]), x))
		}
	}
	d, dv, heads := p.Dim, p.DimV, p.StateHeads()
	for at, states := range tr.states {
		head := at[0]*heads + at[1]
		for i, x := range states[len(states)-1] {
			e := head*d*dv + i
			if i >= d*dv {
				e = p.Batch*heads*d*dv + head*d + i - d*dv
			}
			if i < d*dv || !p.Linear.Unnormalised {
				total = dual.Add(total, dual.Scale(float64(g.StateOut[e]), x))
			}
		}
	}
	return total
}

// gradientsByElement returns the oracle's gradients by name and element of the operand. Elements
// that several rows share have the sum.
func gradientsByElement(t *testing.T, p attn.Problem, a *attn.Args, g *attn.Grads) map[string]map[int]float64 {
	t.Helper()
	o, err := oracle.New(p, a)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[int]float64{}
	seen := 0
	if _, err := o.EachGrad(g, func(name string, at oracle.Index, _ []float32, want, _ []float64) {
		base, z := name, 0
		if name == "dStateIn z" {
			base, z = "dStateIn", p.Batch*p.StateHeads()*p.Dim*p.DimV
		}
		if all[base] == nil {
			all[base] = map[int]float64{}
		}
		for c, x := range want {
			var e int
			switch {
			case z > 0:
				e = z + (at.B*p.StateHeads()+at.H)*p.Dim + c
			case base == "dStateIn":
				e = ((at.B*p.StateHeads()+at.H)*p.Dim+at.I)*p.DimV + c
			default:
				x := map[string]*attn.Tensor{"dQ": &a.Q, "dK": &a.K, "dV": &a.V, "dDecay": &a.Terms.Decay, "dBeta": &a.Terms.Beta}[name]
				b, s := a.KRow(&p, at.B, at.I)
				e = b*x.SB + s*x.SS + at.H*x.SH + c
			}
			all[base][e] += x
			seen++
		}
	}); err != nil {
		t.Fatal(err)
	}
	if n := g.Q.Size() + g.K.Size() + g.V.Size() + g.Terms.Decay.Size() + g.Terms.Beta.Size() + len(g.StateIn); seen != n {
		t.Errorf("%d gradients, want %d", seen, n)
	}
	return all
}

// TestSampleOfStates checks that a sample of a large recurrence is of few state heads, with the
// first and the last token, and that a small one is of all.
func TestSampleOfStates(t *testing.T) {
	p := attn.GatedDelta(attn.Problem{Batch: 2, SeqQ: 4096, SeqKV: 4096, HeadsQ: 2, HeadsKV: 2, Dim: 256, DimV: 256, Linear: attn.Linear{HeadsV: 8}})
	a := &attn.Args{Q: attn.Tensor{S: 4096}, K: attn.Tensor{S: 4096}}
	heads, seen := map[[2]int]bool{}, map[oracle.Index]bool{}
	first, last := false, false
	for _, at := range oracle.Sample(&p, a, 50, 3) {
		heads[[2]int{at.B, at.H}], seen[at] = true, true
		first, last = first || at.I == 0, last || at.I == 4095
	}
	if len(heads) != 1 || len(seen) != 50 || !first || !last {
		t.Errorf("%d rows of %d state heads, first row %v, last row %v; want 50 rows of one", len(seen), len(heads), first, last)
	}
	if n := len(oracle.Sample(&p, a, 5000, 3)); n != 4096 {
		t.Errorf("%d rows, want the 4096 of one state head", n)
	}
	p.Dim, p.DimV = 4, 4
	clear(heads)
	for _, at := range oracle.Sample(&p, a, 500, 3) {
		heads[[2]int{at.B, at.H}] = true
	}
	if len(heads) != 16 {
		t.Errorf("rows of %d state heads, want all 16", len(heads))
	}
}

// TestThinStates checks that Thin keeps the incoming gradients of rows, and of the states that they
// read.
func TestThinStates(t *testing.T) {
	p := attn.GatedDelta(attn.Problem{Batch: 2, SeqQ: 3, SeqKV: 3, HeadsQ: 2, HeadsKV: 2, Dim: 2, DimV: 3, Linear: attn.Linear{HeadsV: 4}, Want: attn.WantGrad})
	a := ruledCall(p, 1)
	g := ruledGrads(p, a, 1)
	oracle.Thin(&p, a, g, []oracle.Index{{B: 1, H: 2, I: 1}})
	for i, x := range g.StateOut {
		if kept := i/6 == 1*4+2; kept != (x != 0) {
			t.Errorf("number %d of dStateOut is %v, want it kept: %v", i, x, kept)
		}
	}
	o, err := oracle.New(p, a)
	if err != nil {
		t.Fatal(err)
	}
	some := map[int]bool{}
	if _, err := o.EachGrad(g, func(name string, at oracle.Index, _ []float32, want, _ []float64) {
		for _, x := range want {
			if name == "dV" && x != 0 {
				some[at.B*4+at.H] = true
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	if len(some) != 1 || !some[6] {
		t.Errorf("dV of heads %v, want that of head 2 of batch entry 1", some)
	}
}

// TestStateInPlace checks that an oracle made before a call keeps a StateIn that the call
// overwrites.
func TestStateInPlace(t *testing.T) {
	p := attn.GatedDelta(attn.Problem{Batch: 1, SeqQ: 3, SeqKV: 3, HeadsQ: 1, HeadsKV: 1, Dim: 2, DimV: 2})
	a := ruledCall(p, 1)
	copy(a.StateOut, a.StateIn)
	a.StateIn = a.StateOut
	o, err := oracle.New(p, a)
	if err != nil {
		t.Fatal(err)
	}
	tr := follow(&p, a, reals, plain)
	fillStates(&p, a, tr)
	for at, want := range tr.out {
		for c, x := range want {
			a.Out.Row(tensorRow(&p, a, at))[c] = float32(x)
		}
	}
	if v := o.Judge(oracle.All(&p, a)); !(v.Worst <= 0.5) || v.Numbers != 10 {
		t.Errorf("the definition in place is %.2g of its tolerance, %d numbers: %s", v.Worst, v.Numbers, v.Where)
	}
}

// TestPadding checks that tokens that change nothing leave a state that must be equal.
func TestPadding(t *testing.T) {
	for i, c := range ruled {
		p, a := smallRuled(t, i)
		if !p.Linear.Unnormalised || p.Linear.Feature != attn.Identity || p.Linear.Norm == attn.NormMax {
			continue // features of 0 are not 0
		}
		for _, x := range []*attn.Tensor{&a.K, &a.V, &a.Terms.Decay, &a.Terms.Beta} {
			clear(x.Data)
		}
		for slot := range max(1, p.Linear.Snapshots) {
			copy(a.StateOut[slot*p.StateLen():], a.StateIn)
		}
		o, err := oracle.New(p, a)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range oracle.All(&p, a) {
			for c, x := range o.Row(at).Out {
				a.Out.Row(tensorRow(&p, a, at))[c] = float32(x)
			}
		}
		if v := o.Judge(oracle.All(&p, a)); !(v.Worst <= 0.5) {
			t.Errorf("%s: the incoming state is %.2g of the tolerance: %s", c.name, v.Worst, v.Where)
		}
		x := &a.StateOut[1]
		*x = math.Nextafter32(*x, 9)
		if v := o.Judge(oracle.All(&p, a)); !(v.Worst > 1) {
			t.Errorf("%s: padding may change the state: %.2g of the tolerance", c.name, v.Worst)
		}
	}
}

// TestFarGradients checks that a gradient must be near 0 where the definition's is too small to be
// judged.
func TestFarGradients(t *testing.T) {
	p := attn.DeltaNet(attn.Problem{Batch: 1, SeqQ: 400, SeqKV: 400, HeadsQ: 1, HeadsKV: 1, Dim: 2, DimV: 2, Want: attn.WantGrad})
	a := ruledCall(p, 2)
	g := ruledGrads(p, a, 2)
	oracle.Thin(&p, a, g, []oracle.Index{{I: 399}})
	clear(g.StateOut)
	o, err := oracle.New(p, a)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.EachGrad(g, func(_ string, _ oracle.Index, got []float32, want, _ []float64) {
		for c, x := range want {
			got[c] = float32(x)
		}
	}); err != nil {
		t.Fatal(err)
	}
	v, err := o.JudgeGrads(g)
	if err != nil {
		t.Fatal(err)
	}
	if !(v.Worst <= 0.5) || v.Judged == v.Numbers || v.Judged == 0 {
		t.Errorf("%.2g of the tolerance, %d of %d gradients judged; want some, not all", v.Worst, v.Judged, v.Numbers)
	}
	g.V.Row(0, 3, 0)[1] = 0.01
	if v, err = o.JudgeGrads(g); err != nil || !(v.Worst > 1) {
		t.Errorf("dV of 0.01 far from any incoming gradient passes at %.2g: %v", v.Worst, err)
	}
}

// TestOverflow checks that a state is infinite which float32 cannot hold, and that only a gate of 0
// changes that, to NaN.
func TestOverflow(t *testing.T) {
	p := attn.RetNet(attn.Problem{Batch: 1, SeqQ: 4, SeqKV: 4, HeadsQ: 1, HeadsKV: 1, Dim: 1, DimV: 2})
	inf, minus := math.Inf(1), float32(math.Inf(-1))
	for _, c := range []struct {
		name    string
		g, k, v [4]float32
		want    [4]float64
	}{
		{"write", [4]float32{0, -1, -1, minus}, [4]float32{1, 2, 0, 0}, [4]float32{1, 3e38, 0, 0}, [4]float64{1, inf, inf, math.NaN()}},
		{"decay", [4]float32{0, 1, -2, 0}, [4]float32{1, 0, 0, 0}, [4]float32{-3e38, 0, 0, 0}, [4]float64{-3e38, -inf, -inf, -inf}},
		{"gate", [4]float32{0, 89, -89, 0}, [4]float32{1e-9, 0, 0, 0}, [4]float32{1, 0, 0, 0}, [4]float64{1e-9, inf, inf, inf}},
	} {
		a := ruledCall(p, 1)
		clear(a.StateIn)
		for i := range c.g {
			a.Q.Row(0, i, 0)[0] = 1
			a.K.Row(0, i, 0)[0] = c.k[i]
			a.V.Row(0, i, 0)[0], a.V.Row(0, i, 0)[1] = c.v[i], 0
			a.Terms.Decay.Row(0, i, 0)[0] = c.g[i]
		}
		o, err := oracle.New(p, a)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range c.want {
			if got := o.Row(oracle.Index{I: i}).Out[0]; oracle.Ratio(got, want, math.Abs(want)*1e-6) > 1 {
				t.Errorf("%s: token %d: %v, want %v", c.name, i, got, want)
			}
		}
	}
}

// TestReset checks that a gate of 0 makes the tolerance narrow again, however large it was.
func TestReset(t *testing.T) {
	p := attn.GatedDelta(attn.Problem{Batch: 1, SeqQ: 200, SeqKV: 200, HeadsQ: 1, HeadsKV: 1, Dim: 2, DimV: 1})
	p.Linear.Norm, p.Linear.NormEps = attn.NoNorm, 0
	a := ruledCall(p, 1)
	for i := range 200 {
		k := a.K.Row(0, i, 0)
		if k[0], k[1] = 0, 100; i < 3 || i > 190 {
			k[0], k[1] = 1, 0
		} else {
			a.V.Row(0, i, 0)[0] = 0
		}
		a.Terms.Beta.Row(0, i, 0)[0] = 1
		a.Terms.Decay.Row(0, i, 0)[0] = 0
	}
	a.StateIn[1] = 0
	a.Terms.Decay.Row(0, 190, 0)[0] = float32(math.Inf(-1))
	o, err := oracle.New(p, a)
	if err != nil {
		t.Fatal(err)
	}
	for i, narrow := range map[int]bool{1: true, 189: false, 199: true} {
		if r := o.Row(oracle.Index{I: i}); r.TolOut[0] < 1e-4 != narrow {
			t.Errorf("token %d: tolerance %v of %v, want it narrow: %v", i, r.TolOut[0], r.Out[0], narrow)
		}
	}
}
