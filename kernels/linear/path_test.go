package linear

import (
	"math"
	"math/rand/v2"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/kernels/asm"
	"attnlab/kernels/asm/asmtest"
)

// TestCut checks that chunks of a gate for each key channel end before a product of gates leaves
// its bounds, whatever follows, and that a first gate out of bounds is multiplied into the state.
func TestCut(t *testing.T) {
	const d, dv = 3, 2
	for _, c := range []struct {
		name  string
		gates []float32 // of channel 1; the others are 1
		want  []int
		first float32 // factor of the state's row 1
	}{
		{"mild", []float32{.5, .5, .5, .5, .5, .5}, []int{6}, 1},
		{"one strong", []float32{1, 1, 1, 1, 0x1p-50, 0x1p-50, 1, 1, 1, 1}, []int{5, 5}, 1},
		{"reset", []float32{0, 1, 1, 1, 1}, []int{5}, 0},
		{"reset of few", []float32{0, 1, 1}, []int{3}, 1},
		{"reset later", []float32{1, 1, 1, 1, 0, 1, 1, 1, 1}, []int{4, 5}, 0},
		{"growth", []float32{0x1p40, 1, 1, 1, 0x1p40, 1, 1, 1}, []int{4, 4}, 1},
		{"NaN", []float32{1, 1, 1, 1, float32(math.NaN()), 1, 1}, []int{4, 3}, 1},
	} {
		p := attn.KDA(attn.Problem{Batch: 1, SeqQ: 32, SeqKV: 32, HeadsQ: 1, HeadsKV: 1, Dim: d, DimV: dv})
		for _, more := range []int{0, 20} { // later tokens change nothing before them
			w := newWorker(&p, asm.Go())
			w.state = w.own
			for i := range w.x {
				w.x[i] = 1
			}
			for i := range w.alpha {
				w.alpha[i] = 1
			}
			for i, g := range c.gates {
				w.alpha[i*d+1] = g
			}
			n := len(c.gates) + more
			for i, at := 0, 0; i < len(c.want); i++ {
				got := w.cut(at, n-at)
				if i == len(c.want)-1 && more > 0 {
					got = min(got, c.want[i])
				}
				if got != c.want[i] {
					if more > 0 && c.name == "reset of few" { // no longer few
						break
					}
					t.Errorf("%s, %d tokens: part %d has %d, want %d", c.name, n, i, got, c.want[i])
				}
				at += got
			}
			if more == 0 && (w.x[dv] != c.first || w.x[0] != 1) {
				t.Errorf("%s: the state's rows are multiplied by %v and %v, want 1 and %v", c.name, w.x[0], w.x[dv], c.first)
			}
		}
	}
}

// call returns a call of a problem with random operands.
func call(t *testing.T, p attn.Problem) *attn.Args {
	t.Helper()
	a, err := cases.NewArgs(p, "bshd", nil)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, x := range []*attn.Tensor{&a.Q, &a.K, &a.V} {
		for i := range x.Data {
			x.Data[i] = float32(r.NormFloat64())
		}
	}
	tensor := func(h, d int, low, high float64) attn.Tensor {
		x := attn.New(attn.BSHD, p.Batch, p.SeqKV, h, d)
		for i := range x.Data {
			x.Data[i] = float32(low + (high-low)*r.Float64())
		}
		return x
	}
	switch p.Linear.Gate {
	case attn.HeadGate:
		a.Terms.Decay = tensor(p.ValueHeads(), 1, -.5, 0)
	case attn.KeyGate:
		a.Terms.Decay = tensor(p.ValueHeads(), p.Dim, -.5, 0)
	}
	if p.Linear.Delta {
		a.Terms.Beta = tensor(p.ValueHeads(), 1, 0, 1)
	}
	a.StateIn, a.StateOut = make([]float32, p.StateLen()), make([]float32, p.StateLen())
	for i := range a.StateIn {
		a.StateIn[i] = float32(math.Abs(r.NormFloat64()))
	}
	return a
}

// ruled are problems of every rule.
func ruled(n int) map[string]attn.Problem {
	p := attn.Problem{Op: attn.OpLinear, Batch: 1, SeqQ: n, SeqKV: n, HeadsQ: 4, HeadsKV: 2, Dim: 20, DimV: 150, Mask: attn.Causal()}
	normal := p
	normal.Linear.Gate = attn.HeadGate
	return map[string]attn.Problem{"none": p, "normalised": normal, "SSD": attn.SSD(p), "GLA": attn.GLA(p), "delta": attn.DeltaNet(p), "gated delta": attn.GatedDelta(p), "KDA": attn.KDA(p)}
}

// TestStepsAndChunks checks that a sequence computed token by token has the outputs and the state
// of one computed in chunks.
func TestStepsAndChunks(t *testing.T) {
	for _, l := range asmtest.All(t) {
		for name, p := range ruled(45) {
			whole := call(t, p)
			pl, err := New(l.Ops).Plan(p, nil)
			if err != nil {
				t.Fatal(err)
			}
			pl.Forward(whole)
			steps := *whole
			steps.Out, steps.StateOut = attn.New(attn.BSHD, p.Batch, p.SeqQ, p.OutHeads(), p.DimV), make([]float32, p.StateLen())
			copy(steps.StateOut, whole.StateIn)
			steps.StateIn = steps.StateOut
			for i := range p.SeqQ {
				one := steps
				for _, x := range []*attn.Tensor{&one.Q, &one.K, &one.V, &one.Out, &one.Terms.Decay, &one.Terms.Beta} {
					if x.Data != nil {
						x.Data, x.S = x.Data[i*x.SS:], 1
					}
				}
				pl.Forward(&one)
			}
			near(t, l.Name+", "+name+": out", steps.Out.Data, whole.Out.Data)
			near(t, l.Name+", "+name+": state", steps.StateOut, whole.StateOut)
		}
	}
}

// near fails if numbers are further apart than rounding can explain.
func near(t *testing.T, name string, got, want []float32) {
	t.Helper()
	for i, x := range want {
		if d := math.Abs(float64(got[i] - x)); !(d <= 1e-4*(1+math.Abs(float64(x)))) {
			t.Errorf("%s: number %d of %d is %v, want %v", name, i, len(want), got[i], x)
			return
		}
	}
}

// TestNotFinite checks that a value, a query or a key that is not finite reaches what the
// definition lets it reach: tokens before it, other columns of the values and other heads keep
// their bits.
func TestNotFinite(t *testing.T) {
	const at, column = 13, 70
	for _, l := range asmtest.All(t) {
		for name, p := range ruled(45) {
			pl, err := New(l.Ops).Plan(p, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
				for _, what := range []string{"value", "query", "key"} {
					a := call(t, p)
					pl.Forward(a)
					b := call(t, p)
					switch what {
					case "value":
						b.V.Row(0, at, 0)[column] = bad
					case "query":
						b.Q.Row(0, at, 0)[3] = bad
					case "key":
						b.K.Row(0, at, 0)[3] = bad
					}
					pl.Forward(b)
					for i := range p.SeqQ {
						for h := range p.OutHeads() {
							mine := h < p.OutHeads()/p.ValueHeads()
							for c, want := range a.Out.Row(0, i, h) {
								reached := mine
								switch what {
								case "value":
									reached = mine && i >= at && c == column
								case "query":
									reached = h == 0 && i == at
								case "key":
									reached = mine && i >= at
								}
								got := b.Out.Row(0, i, h)[c]
								if !reached && math.Float32bits(got) != math.Float32bits(want) {
									t.Fatalf("%s, %s, %v in a %s: token %d, head %d, column %d is %v, want %v", l.Name, name, bad, what, i, h, c, got, want)
								}
							}
						}
					}
					if got := b.Out.Row(0, at, 0)[column]; got-got == 0 {
						t.Errorf("%s, %s, %v in a %s: its own output is %v", l.Name, name, bad, what, got)
					}
				}
			}
		}
	}
}

// TestAllocations checks that a call of every rule allocates nothing.
func TestAllocations(t *testing.T) {
	for name, p := range ruled(45) {
		pl, err := New(asm.Go()).Plan(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		a := call(t, p)
		if n := testing.AllocsPerRun(3, func() { pl.Forward(a) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
