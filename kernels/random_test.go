package kernels_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/attn/oracle"
	"attnlab/kernels"
	"attnlab/kernels/asm"
	"attnlab/kernels/asm/asmtest"
	"attnlab/kernels/flash"
	"attnlab/kernels/tiled"
)

// TestRandomProblems holds every kernel to the definition on random problems.
func TestRandomProblems(t *testing.T) {
	all := slices.Concat(kernels.All(), always)
	rapid.Check(t, func(t *rapid.T) {
		if c := randomProblem(t); c != nil {
			c.judge(t, all)
		}
	})
}

// always are kernels that pack problems of any size.
var always = func() (all []attn.Kernel) {
	for _, l := range asm.Levels() {
		if l.Available && asmtest.Packs(l.Ops) {
			ops := *l.Ops
			ops.Pack = l.Ops.Pack.Always()
			all = append(all, tiled.New(&ops), flash.New(&ops))
		}
	}
	return all
}()

// A randomCase is a random problem with its operands.
type randomCase struct {
	attn.Problem
	layout string
	args   *attn.Args
	rule   *drawer     // draws operands of a problem with a rule or a state; nil: it has none
	grads  *attn.Grads // gradients of such a problem
}

// randomProblem draws a case. It returns nil if two of the choices exclude each other, or if a
// position is outside a table of angles.
func randomProblem(t *rapid.T) *randomCase {
	size := func(name string, most int) int { return rapid.IntRange(0, most).Draw(t, name) }
	p := attn.Problem{
		Op: rapid.SampledFrom([]attn.Op{attn.OpSoftmax, attn.OpSoftmax, attn.OpLinear}).Draw(t, "op"), Batch: 1 + size("batch", 1),
		SeqQ: size("seqq", 70), SeqKV: size("seqkv", 300), HeadsKV: 1 + size("kvheads", 1), Dim: size("dim", 70), DimV: size("dimv", 70),
		Lengths: rapid.Bool().Draw(t, "lengths"),
		Mask: rapid.SampledFrom([]attn.Mask{
			attn.Full(), attn.Causal(), attn.CausalTopLeft(), attn.Window(size("left", 90), size("right", 90)), attn.Window(attn.Unbounded, size("ahead", 9)),
		}).Draw(t, "mask"),
	}
	group := 1 + size("group", 2)
	switch rapid.IntRange(0, 15).Draw(t, "long") {
	case 0, 1: // several splits, and many heads that share them
		p.SeqQ, p.SeqKV, group = size("few", 9), size("cache", 5000), 1+size("sharing", 20)
		p.Dim, p.DimV = min(p.Dim, 20), min(p.DimV, 20)
	case 2: // several bundles of tiles
		p.SeqQ, p.SeqKV = size("queries", 600), size("keys", 700)
		p.Dim, p.DimV = min(p.Dim, 20), min(p.DimV, 20)
	}
	p.HeadsQ = p.HeadsKV * group
	if p.Op == attn.OpLinear && rapid.Bool().Draw(t, "rule") {
		d := drawer{rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed of the rule"), 0))}
		x := d.rule()
		if p := x.p; p.Validate() != nil || p.Check(x.a) != nil {
			return nil
		}
		return &randomCase{Problem: x.p, layout: "of a rule", args: x.a, rule: &d, grads: x.g}
	}
	if p.Op == attn.OpSoftmax {
		randomSoftmax(t, &p)
		if p.Score != (attn.Score{}) {
			p.Dim = max(p.Dim, 1) // else a term's tolerance is below its roundings
		}
	} else {
		p.Dim = max(p.Dim, 1) // without features, weights are 0/0
		p.Linear.Unnormalised = rapid.Bool().Draw(t, "unnormalised")
		p.Linear.Feature = rapid.SampledFrom([]attn.Feature{attn.EluPlusOne, attn.ReluPlusOne}).Draw(t, "feature")
	}
	if rapid.IntRange(0, 2).Draw(t, "backward") == 0 {
		p.Q, p.KV, p.Out, p.Page, p.Want = attn.F32, attn.F32, attn.F32, 0, p.Want&attn.WantEntropy|attn.WantGrad
	}
	if p.Validate() != nil {
		return nil
	}
	layout := rapid.SampledFrom(cases.Layouts()).Draw(t, "layout")
	if _, err := cases.SlabLen(p, layout); err != nil {
		layout = "bhsd"
	}
	a, err := cases.NewArgs(p, layout, nil)
	if err != nil {
		t.Fatal(err)
	}
	data := cases.Distributions()
	if p.Op == attn.OpLinear { // float32 does not hold the features of inputs near -90
		data = []string{"normal"}
	}
	if err := cases.Fill(rapid.SampledFrom(data).Draw(t, "data"), p, a, rapid.Uint64().Draw(t, "seed")); err != nil {
		t.Fatal(err)
	}
	if randomArgs(t, &p, a); p.Check(a) != nil {
		return nil
	}
	return &randomCase{Problem: p, layout: layout, args: a}
}

// judge holds kernels to the definition on the case.
func (c *randomCase) judge(t *rapid.T, all []attn.Kernel) {
	p, layout, a := c.Problem, c.layout, c.args
	size := func(name string, most int) int { return rapid.IntRange(0, most).Draw(t, name) }
	o, err := oracle.New(p, a)
	if err != nil {
		t.Fatal(err)
	}
	rows := oracle.Sample(&p, a, 64, 1)
	var before *attn.Args // a later call must not read its rest
	if c.rule != nil {
		before, all = c.rule.ruleArgs(&p), append(slices.Clone(all), stepwise{})
	} else {
		before = randomCall(t, &p, layout)
	}
	// The distance of a score from its row's reference is rounded, and the reference may be 40
	// below the largest score. The tolerance comes from sums of products. With few columns, or with
	// few columns and a score term, it can be smaller than that rounding, mostly in gradients.
	most := 1.0
	switch columns := min(p.Dim, p.QDim()); {
	case min(columns, p.DimV) < 4 && p.Want&attn.WantGrad != 0:
		most = 4
	case columns < 8, columns < 16 && p.Score.Terms != 0:
		most = 2
	}
	g := c.grads
	if p.Want&attn.WantGrad != 0 && g == nil {
		if g, err = cases.NewGrads(p, a, layout, nil); err != nil {
			t.Fatal(err)
		}
		cases.FillGrads(g, rapid.Uint64().Draw(t, "gradients"))
		oracle.Thin(&p, a, g, rows)
		rows = rows[:min(len(rows), 1)]
	}
	team := attn.NewTeam(1 + size("workers", 2))
	defer team.Close()
	for _, k := range all {
		algo, isa := k.Name()
		most := most
		// Naive adds one key after another. Its errors grow with the number of keys, and have the
		// same sign where all pages are the same rows.
		switch {
		case algo == "naive" && p.SeqKV > 1000:
			continue
		case algo == "naive" && layout == "broadcast" && p.Page != 0:
			most *= 2
		}
		plan, err := k.Plan(p, team)
		if err != nil {
			continue // the suite checks that Plan supports what is claimed
		}
		if before != nil {
			plan.Forward(before)
		}
		run := func(plan attn.Plan) []float32 {
			plan.Forward(a)
			if g != nil {
				plan.(attn.Differentiable).Backward(a, g)
			}
			return written(a, g)
		}
		got := run(plan)
		v := o.Judge(rows)
		if g != nil {
			if v, err = o.JudgeGrads(g); err != nil {
				t.Fatal(err)
			}
		}
		if !(v.Worst <= most) {
			t.Errorf("%s/%s: %.3g times the tolerance: %s", algo, isa, v.Worst, v.Where)
		}
		if plan, err = k.Plan(p, nil); err != nil {
			t.Fatal(err)
		}
		for i, x := range run(plan) {
			if math.Float32bits(x) != math.Float32bits(got[i]) {
				t.Fatalf("%s/%s: number %d of %d is %v alone, and %v by %d workers after another call", algo, isa, i, len(got), x, got[i], team.Workers())
			}
		}
	}
}

// written returns everything that a call writes.
func written(a *attn.Args, g *attn.Grads) []float32 {
	var all []float32
	add := func(_ string, t *attn.Tensor) {
		cases.Rows(t, func(_, _, _ int, row []float32) { all = append(all, row...) })
	}
	cases.Outputs(a, add)
	if g != nil {
		cases.Outgoing(g, add)
	}
	for _, j := range a.Stats.ArgMax {
		all = append(all, float32(j))
	}
	all = append(all, a.StateOut...)
	if g != nil {
		all = append(all, g.StateIn...)
	}
	return all
}

// randomSoftmax draws the features of a softmax problem.
func randomSoftmax(t *rapid.T, p *attn.Problem) {
	s := &p.Score
	rarely := func(name string) bool { return rapid.IntRange(0, 3).Draw(t, name) == 0 }
	s.Temp = rapid.SampledFrom([]float64{0, 0, 0.3, 5, math.Inf(1)}).Draw(t, "temp")
	p.Want = rapid.SampledFrom([]attn.Want{0, attn.WantLSE, attn.WantLSE | attn.WantMean | attn.WantEntropy, attn.WantMax | attn.WantArgMax}).Draw(t, "want")
	for term := attn.TermBias; term <= attn.TermMetric; term <<= 1 {
		if rarely("term") {
			s.Terms |= term
		}
	}
	if s.Terms&attn.TermMetric != 0 && rapid.Bool().Draw(t, "rectangular") {
		p.DimQ = rapid.IntRange(1, 40).Draw(t, "dimq")
	}
	if rarely("softcap") {
		s.Softcap = rapid.SampledFrom([]float64{0.1, 3, 1000}).Draw(t, "cap")
	}
	if rarely("rope") {
		s.Rope = rapid.SampledFrom([]attn.Rope{attn.RopeInterleaved, attn.RopeHalves}).Draw(t, "pairs")
	}
	switch rapid.IntRange(0, 7).Draw(t, "bitmap") {
	case 0:
		p.Mask = p.Mask.With(attn.BoolBitmap)
	case 1:
		p.Mask = p.Mask.With(attn.PackedBitmap)
	case 2:
		p.Mask = p.Mask.WithBlocks(rapid.SampledFrom([]int{1, 5, 16, 48, 64, 100}).Draw(t, "side"))
	}
	types := []attn.DType{attn.F32, attn.F32, attn.F16, attn.BF16, attn.I8}
	p.KV = rapid.SampledFrom(types).Draw(t, "kv")
	p.Q, p.Out = rapid.SampledFrom(types[:4]).Draw(t, "q"), rapid.SampledFrom(types[:4]).Draw(t, "out")
	p.Ragged = rarely("ragged")
	if rarely("pages") {
		p.Page = rapid.SampledFrom([]int{8, 16, 128}).Draw(t, "page")
	}
}

// randomCall draws another call of the same problem. Some of its values may be numbers that are not
// finite.
func randomCall(t *rapid.T, p *attn.Problem, layout string) *attn.Args {
	if rapid.Bool().Draw(t, "alone") {
		return nil
	}
	a, err := cases.NewArgs(*p, layout, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := cases.Fill("normal", *p, a, 1); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(a.V.Data); i += 997 {
		a.V.Data[i] = float32(math.Inf(1))
	}
	if randomArgs(t, p, a); p.Check(a) != nil {
		return nil
	}
	return a
}

// randomArgs draws the arguments of a call other than numbers: its bitmap, the lengths of its
// sequences, and the positions of its queries.
func randomArgs(t *rapid.T, p *attn.Problem, a *attn.Args) {
	step := rapid.IntRange(1, 5).Draw(t, "holes")
	for i := range a.Allowed.Bool {
		a.Allowed.Bool[i] = i%step != 1
	}
	for i := range a.Allowed.Words {
		a.Allowed.Words[i] = rapid.SampledFrom([]uint64{0, ^uint64(0), 0x5555_0ff0_8001_7ffe}).Draw(t, "words")
	}
	if p.Ragged {
		a.QStart = randomStarts(t, a.QStart)
		if a.KStart != nil {
			a.KStart = randomStarts(t, a.KStart)
		}
	}
	for b := range a.KLen {
		most := p.SeqKV
		if a.KStart != nil {
			most = int(a.KStart[b+1] - a.KStart[b])
		}
		a.KLen[b] = int32(rapid.IntRange(0, most).Draw(t, "klen"))
	}
	if p.Lengths && rapid.Bool().Draw(t, "positions") {
		for range p.Batch {
			a.QPos = append(a.QPos, int32(rapid.IntRange(-80, 310).Draw(t, "qpos")))
		}
	}
	if r := &a.Terms.Relative; r.S > 0 && rapid.Bool().Draw(t, "clip") {
		a.Terms.RelativeClip = rapid.IntRange(1, 30).Draw(t, "clip at")
		if r.S = 2*a.Terms.RelativeClip + 1; r.S > p.SeqQ+p.SeqKV-1 {
			a.Terms.RelativeClip, r.S = 0, p.SeqQ+p.SeqKV-1
		}
	}
}

// randomStarts shortens sequences and leaves gaps between them.
func randomStarts(t *rapid.T, full []int32) []int32 {
	starts := []int32{full[0]}
	for b, end := range full[1:] {
		starts = append(starts, rapid.Int32Range(starts[b], min(end, starts[b]+end-full[b])).Draw(t, "start"))
	}
	return starts
}
