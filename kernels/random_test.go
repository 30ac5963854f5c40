package kernels_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/attn/oracle"
	"attnlab/kernels"
)

// TestRandomProblems holds every kernel to the definition on problems that nobody thought of. FuzzProblems is the same, guided by coverage:
//
//	go test -run '^$' -fuzz Problems ./kernels
func TestRandomProblems(t *testing.T) { rapid.Check(t, randomProblem) }

func FuzzProblems(f *testing.F) { f.Fuzz(rapid.MakeFuzz(randomProblem)) }

func randomProblem(t *rapid.T) {
	size := func(name string, most int) int { return rapid.IntRange(0, most).Draw(t, name) }
	p := attn.Problem{
		Op: rapid.SampledFrom([]attn.Op{attn.OpSoftmax, attn.OpSoftmax, attn.OpLinear}).Draw(t, "op"), Batch: 1 + size("batch", 1),
		SeqQ: size("seqq", 70), SeqKV: size("seqkv", 300), HeadsKV: 1 + size("kvheads", 1), Dim: size("dim", 70), DimV: size("dimv", 70),
		Lengths: rapid.Bool().Draw(t, "lengths"),
		Mask: rapid.SampledFrom([]attn.Mask{
			attn.Full(), attn.Causal(), attn.CausalTopLeft(), attn.Window(size("left", 90), size("right", 90)), attn.Window(attn.Unbounded, size("ahead", 9)),
		}).Draw(t, "mask"),
	}
	p.HeadsQ = p.HeadsKV * (1 + size("group", 2))
	if p.Op == attn.OpSoftmax {
		p.Score.Temp = rapid.SampledFrom([]float64{0, 0, 0.3, 5, math.Inf(1)}).Draw(t, "temp")
		p.Want = rapid.SampledFrom([]attn.Want{0, attn.WantLSE, attn.WantLSE | attn.WantMean | attn.WantEntropy}).Draw(t, "want")
		if rapid.Bool().Draw(t, "bias") {
			p.Score.Terms = attn.TermBias
		}
		if rapid.IntRange(0, 3).Draw(t, "bitmap") == 0 {
			p.Mask = p.Mask.With(attn.BoolBitmap)
		}
	} else {
		p.Dim = max(p.Dim, 1) // without features, weights are 0/0
		p.Linear.Unnormalised = rapid.Bool().Draw(t, "unnormalised")
		p.Linear.Feature = rapid.SampledFrom([]attn.Feature{attn.EluPlusOne, attn.ReluPlusOne}).Draw(t, "feature")
	}
	layouts := cases.Layouts()
	if p.SeqQ != p.SeqKV {
		layouts = []string{"bhsd", "bshd", "padded", "broadcast"}
	}
	a, err := cases.NewArgs(p, rapid.SampledFrom(layouts).Draw(t, "layout"), nil)
	if err != nil {
		t.Fatal(err)
	}
	data := cases.Distributions()
	if p.Op == attn.OpLinear { // inputs of -90 have features that float32 does not hold
		data = []string{"normal"}
	}
	if err := cases.Fill(rapid.SampledFrom(data).Draw(t, "data"), p, a, rapid.Uint64().Draw(t, "seed")); err != nil {
		t.Fatal(err)
	}
	if p.Mask.Bitmap == attn.BoolBitmap {
		step := 1 + size("holes", 4)
		for i := range a.Allowed.Bool {
			a.Allowed.Bool[i] = i%step != 1
		}
	}
	for b := range a.KLen {
		a.KLen[b] = int32(size("klen", p.SeqKV))
	}
	if p.Lengths && rapid.Bool().Draw(t, "positions") {
		for range p.Batch {
			a.QPos = append(a.QPos, int32(rapid.IntRange(-80, 310).Draw(t, "qpos")))
		}
	}
	o, err := oracle.New(p, a)
	if err != nil {
		t.Fatal(err)
	}
	rows := oracle.Sample(&p, a, 64, 1)
	for _, k := range kernels.All() {
		algo, isa := k.Name()
		plan, err := k.Plan(p, nil)
		if err != nil {
			continue // the suite holds Plan to what is claimed
		}
		plan.Forward(a)
		if v := o.Judge(rows); !(v.Worst <= 1) {
			t.Errorf("%s/%s: %.3g times the tolerance: %s", algo, isa, v.Worst, v.Where)
		}
	}
}
