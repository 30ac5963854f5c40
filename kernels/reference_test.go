package kernels_test

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/kernels"
)

var (
	referenceTrials = flag.Int("reference", 40, "random problems that TestReference holds every kernel to")
	referenceSeed   = flag.Uint64("reference.seed", 1, "seed of TestReference's first problem; the next one has the next seed")
)

// TestReference checks that every kernel agrees, forward and backward, with a definition that
// shares no code with package oracle, on random problems. Half of them have scores far from 0.
//
//	go test ./kernels -run TestReference -reference 3000
//	go test ./kernels -run TestReference -reference 1 -reference.seed 1234
//
// Each number has a first-order bound: see the type number. A number whose bound is above 2^-8 of
// the sum of its terms' sizes is not judged, but an error beyond the bound fails even then. At
// least 95 % of all numbers must be judged. An empty sum does not count, and must be exact.
func TestReference(t *testing.T) {
	all := tally{}
	for seed := *referenceSeed; seed < *referenceSeed+uint64(*referenceTrials); seed++ {
		x := newTrial(seed)
		r := refer(&x.p, x.a, x.g, x.cuts != nil)
		var wrong []string
		ran := 0
		for i, k := range slices.Concat(kernels.All(), always, []attn.Kernel{stepwise{}}) {
			if _, err := k.Check(x.p, 1); err != nil || k == attn.Kernel(stepwise{}) && !r.recurs() {
				continue
			}
			ran++
			x.run(t, k, seed)
			algo, isa := k.Name()
			if i >= len(kernels.All()) && isa != "test" {
				isa += " in parts"
			}
			for _, text := range all.judge(r) {
				wrong = append(wrong, fmt.Sprintf("%s/%s: %s", algo, isa, text))
			}
		}
		if ran == 0 {
			wrong = append(wrong, "no kernel does this")
		}
		if wrong != nil {
			t.Errorf("-reference 1 -reference.seed %d: %v\n%s", seed, x, strings.Join(wrong, "\n"))
		}
	}
	t.Log(all)
	if share := all.share(); share < 0.95 && *referenceTrials >= 40 {
		t.Errorf("%.2f %% of the numbers are judged, want at least 95", 100*share)
	}
}

// run computes a trial with a kernel, on one to three workers. All outputs are NaN before.
func (x *trial) run(t *testing.T, k attn.Kernel, seed uint64) {
	team := attn.NewTeam(1 + int(seed%3))
	defer team.Close()
	plan, err := k.Plan(x.p, team)
	if err != nil {
		t.Fatal(err)
	}
	x.spoil()
	if x.cuts != nil {
		x.merge(plan, int(seed))
		return
	}
	plan.Forward(x.a)
	if x.g != nil {
		plan.(attn.Differentiable).Backward(x.a, x.g)
	}
}

// spoil fills the outputs with NaN.
func (x *trial) spoil() {
	s := &x.a.Stats
	lists := [][]float32{x.a.Out.Data, x.a.StateOut, s.LSE.Data, s.Mean.Data, s.Entropy.Data, s.Max.Data, s.Weights.Data, s.Scores.Data}
	if g := x.g; g != nil {
		t := &g.Terms
		lists = append(lists, g.Q.Data, g.K.Data, g.V.Data, t.Bias.Data, t.Slopes, t.Sinks, t.Relative.Data, t.Metric.Data)
		lists = append(lists, t.Decay.Data, t.Beta.Data, g.StateIn)
	}
	for _, l := range lists {
		for i := range l {
			l[i] = float32(math.NaN())
		}
	}
	for i := range x.a.Out.Bits {
		x.a.Out.Bits[i] = 0x7fff // NaN in either type
	}
	for i := range s.ArgMax {
		s.ArgMax[i] = -2
	}
}

// merge computes the parts of the keys separately and merges their results, starting with part
// first.
func (x *trial) merge(plan attn.Plan, first int) {
	o := &x.a.Out
	all := attn.NewPartial(o.B, o.S, o.H, o.D)
	parts := len(x.cuts) - 1
	for i := range parts {
		i = (i + first) % parts
		part := attn.NewPartial(o.B, o.S, o.H, o.D)
		plan.Forward(x.part(i, part))
		all.Merge(part)
	}
	write := func(to, from *attn.Tensor) {
		each(from, func(b, s, h int) { to.Write(from.Row(b, s, h), b, s, h) })
	}
	write(o, &all.Out)
	write(&x.a.Stats.LSE, &all.LSE)
}

// part returns the call over a part of the keys. Sinks belong to the first part.
func (x *trial) part(i int, to attn.Partial) *attn.Args {
	a, lo, hi := *x.a, x.cuts[i], x.cuts[i+1]
	a.Out, a.Stats = to.Out, attn.Stats{LSE: to.LSE}
	for _, t := range []*attn.Tensor{&a.K, &a.V} {
		t.Data, t.S = t.Data[lo*t.SS:], hi-lo
	}
	if b := &a.Terms.Bias; b.D == x.a.K.S {
		b.Data, b.D = b.Data[lo:], hi-lo
	}
	a.QPos = slices.Clone(a.QPos)
	for b := range a.QPos {
		a.QPos[b] -= int32(lo)
	}
	if a.Terms.Sinks != nil && i > 0 {
		a.Terms.Sinks = slices.Repeat([]float32{float32(math.Inf(-1))}, len(a.Terms.Sinks))
	}
	return &a
}

// A count is the result of judging one kind of output.
type count struct {
	numbers, judged int
	worst           float64 // error over bound of the numbers judged
}

// A tally holds the counts by name of the output.
type tally map[string]*count

// of returns the count of an output, and creates it the first time.
func (all tally) of(name string) *count {
	if all[name] == nil {
		all[name] = &count{}
	}
	return all[name]
}

// share returns the judged share of all numbers.
func (all tally) share() float64 {
	var sum count
	for _, c := range all {
		sum.numbers, sum.judged = sum.numbers+c.numbers, sum.judged+c.judged
	}
	return float64(sum.judged) / float64(sum.numbers)
}

// String returns the counts as a table.
func (all tally) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%.2f %% of the numbers judged\n", 100*all.share())
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if c := all[name]; c.numbers > 0 {
			fmt.Fprintf(&s, "%-9s %10d numbers, %6.2f %% judged, worst error %.3f of the bound\n", name, c.numbers, 100*float64(c.judged)/float64(c.numbers), c.worst)
		}
	}
	return s.String()
}

// judge compares the outputs with the reference, and returns a text for each output that is wrong.
func (all tally) judge(r *reference) (wrong []string) {
	for _, o := range r.outputs {
		c, bad, worst, text := all.of(o.name), 0, 0.0, ""
		each(o.tensor, func(b, s, h int) {
			row := o.tensor.Read(make([]float32, o.tensor.D), b, s, h)
			for d, want := range o.row(b, s, h) {
				got := float64(row[d])
				if o == r.lse && len(row) == 2 && !math.IsInf(got, 0) {
					got += float64(row[1])
				}
				ratio := c.judge(got, want, half(o.tensor.Type, math.Abs(want.x)+want.err))
				if ratio <= 1 {
					continue
				}
				if bad++; ratio > worst {
					worst = ratio
					text = fmt.Sprintf("%s[%d][%d][%d][%d] is %v, want %v within %.3g: %.3g times the bound", o.name, b, s, h, d, got, want.x, want.err, ratio)
				}
			}
		})
		if bad > 0 {
			wrong = append(wrong, fmt.Sprintf("%s (%d of %d are wrong)", text, bad, len(o.numbers)))
		}
	}
	for i, most := range r.most {
		if most == nil {
			continue
		}
		c := all.of("ArgMax")
		if c.numbers++; len(most) == 1 {
			c.judged++
		}
		if got := int(r.a.Stats.ArgMax[i]); !slices.Contains(most, got) {
			wrong = append(wrong, fmt.Sprintf("ArgMax[%d] is %d, want one of %d", i, got, most))
		}
	}
	return wrong
}

// judge compares a number whose storage adds an error, and returns the error over the bound.
func (c *count) judge(got float64, want number, stored float64) float64 {
	if math.IsInf(want.err, 1) {
		return 0
	}
	if math.IsNaN(want.x) || math.IsInf(want.x, 0) || want.size == 0 {
		if got == want.x || math.IsNaN(got) && math.IsNaN(want.x) {
			return 0
		}
		return math.Inf(1)
	}
	c.numbers++
	ratio := math.Abs(got-want.x) / (want.err + stored)
	if math.IsNaN(ratio) {
		ratio = math.Inf(1)
	}
	if want.err <= want.size/256 {
		c.judged++
		c.worst = max(c.worst, ratio)
	}
	return ratio
}

// half returns half of the last place of a number of the given size.
func half(t attn.DType, size float64) float64 {
	bits, least := 24, -149
	switch t {
	case attn.F16:
		bits, least = 11, -24
	case attn.BF16:
		bits, least = 8, -133
	}
	_, exp := math.Frexp(size)
	return math.Ldexp(0.5, max(exp-bits, least))
}

// A definition is a plan that computes by definition, or does so but leaves the logarithms of sums
// out of its LSE.
type definition struct {
	p     *attn.Problem
	lossy bool
}

func (f definition) Scratch() int64 { return 0 }

func (f definition) Forward(a *attn.Args) {
	r := refer(f.p, a, nil, false)
	if f.lossy {
		for i := range r.logSums {
			r.logSums[i].Log = 0
		}
	}
	r.write()
}

// write stores the results of a reference in the outputs of a kernel.
func (r *reference) write() {
	for _, o := range r.outputs {
		each(o.tensor, func(b, s, h int) {
			row := make([]float32, o.tensor.D)
			for d, x := range o.row(b, s, h) {
				row[d] = float32(x.x)
			}
			if o == r.lse && len(row) == 2 {
				z := r.logSums[(b*o.tensor.S+s)*o.tensor.H+h]
				row[0], row[1] = float32(z.Ref), float32(z.Log)
			}
			o.tensor.Write(row, b, s, h)
		})
	}
	for i, most := range r.most {
		if most != nil {
			r.a.Stats.ArgMax[i] = int32(most[0])
		}
	}
}

// rows replaces an operand by a copy whose rows of batch entry 0 are changed. It reports whether
// there is such an operand.
func rows(t *attn.Tensor, change func(row []float32, s, h int)) bool {
	if len(t.Data) == 0 {
		return false
	}
	t.Data = slices.Clone(t.Data)
	for s := range t.S {
		for h := range t.H {
			change(t.Row(0, s, h), s, h)
		}
	}
	return true
}

// A mutant is a plausible mistake in a computation or in an output. It reports whether it changes
// anything in a trial.
type mutant struct {
	name    string
	compute func(p *attn.Problem, a *attn.Args) bool
	write   func(x *trial) bool
}

func mutants() []mutant {
	negate := func(x []float32) []float32 {
		to := slices.Clone(x)
		for i := range to {
			to[i] = -to[i]
		}
		return to
	}
	times := func(t *attn.Tensor, by int) bool {
		for i := range t.Data {
			t.Data[i] *= float32(by)
		}
		return len(t.Data) > 0 && by > 1
	}
	return []mutant{
		{name: "scale 1 % too large", compute: func(p *attn.Problem, a *attn.Args) bool {
			scale := (&reference{p: p}).scale()
			p.Score.Scale = 1.01 * scale
			return p.Op == attn.OpSoftmax
		}},
		{name: "no temperature", compute: func(p *attn.Problem, a *attn.Args) bool {
			was := p.Score.Temp
			p.Score.Temp = 1
			return was != 0
		}},
		{name: "no softcap", compute: func(p *attn.Problem, a *attn.Args) bool {
			was := p.Score.Softcap
			p.Score.Softcap = 0
			return was != 0
		}},
		{name: "no sinks", compute: func(p *attn.Problem, a *attn.Args) bool {
			was := p.Score.Terms
			p.Score.Terms &^= attn.TermSinks
			return was != p.Score.Terms
		}},
		{name: "no relative positions", compute: func(p *attn.Problem, a *attn.Args) bool {
			was := p.Score.Terms
			p.Score.Terms &^= attn.TermRelative
			return was != p.Score.Terms
		}},
		{name: "slopes of the other sign", compute: func(p *attn.Problem, a *attn.Args) bool {
			a.Terms.Slopes = negate(a.Terms.Slopes)
			return a.Terms.Slopes != nil
		}},
		{name: "other pairs turn", compute: func(p *attn.Problem, a *attn.Args) bool {
			was := p.Score.Rope
			p.Score.Rope = attn.RopeInterleaved + attn.RopeHalves - was
			return was != attn.NoRope && a.Terms.Cos.D > 1
		}},
		{name: "a band one key too wide", compute: func(p *attn.Problem, a *attn.Args) bool {
			p.Mask.Right++
			return p.Mask.Band && p.Mask.Right > 0
		}},
		{name: "a key in use forgotten", compute: func(p *attn.Problem, a *attn.Args) bool {
			a.KLen = slices.Clone(a.KLen)
			for b := range a.KLen {
				a.KLen[b] = max(a.KLen[b]-1, 0)
			}
			return a.KLen != nil
		}},
		{name: "the lowest bias hides", compute: func(p *attn.Problem, a *attn.Args) bool {
			b := &a.Terms.Bias
			b.Data = slices.Clone(b.Data)
			for i, x := range b.Data {
				if x == -math.MaxFloat32 {
					b.Data[i] = float32(math.Inf(-1))
				}
			}
			return slices.Contains(b.Data, float32(math.Inf(-1)))
		}},
		{name: "no delta rule", compute: func(p *attn.Problem, a *attn.Args) bool {
			was := p.Linear.Delta
			p.Linear.Delta = false
			return was
		}},
		{name: "beta twice", compute: func(p *attn.Problem, a *attn.Args) bool {
			return rows(&a.Terms.Beta, func(row []float32, _, _ int) { row[0] *= row[0] })
		}},
		{name: "gates of the token before", compute: func(p *attn.Problem, a *attn.Args) bool {
			was := a.Terms.Decay
			return was.SS > 0 && rows(&a.Terms.Decay, func(row []float32, s, h int) { copy(row, was.Row(0, max(s-1, 0), h)) })
		}},
		{name: "value heads in reverse", compute: func(p *attn.Problem, a *attn.Args) bool {
			was := a.V
			return p.Linear.HeadsV > 1 && rows(&a.V, func(row []float32, s, h int) { copy(row, was.Row(0, s, was.H-1-h)) })
		}},
		{name: "the other norm", compute: func(p *attn.Problem, a *attn.Args) bool {
			was := p.Linear.Norm
			p.Linear.Norm = attn.NormSum + attn.NormMax - was
			return was != attn.NoNorm && p.Linear.NormEps > 0.1
		}},
		{name: "no incoming state", compute: func(p *attn.Problem, a *attn.Args) bool {
			was := a.StateIn
			a.StateIn = nil
			return was != nil
		}},
		{name: "snapshots in reverse", write: func(x *trial) bool {
			n := len(x.a.StateOut) / max(1, x.p.Linear.Snapshots)
			first := slices.Clone(x.a.StateOut[:n])
			last := x.a.StateOut[len(x.a.StateOut)-n:]
			copy(x.a.StateOut[:n], last)
			copy(last, first)
			return x.p.Linear.Snapshots > 1 && n > 0
		}},
		{name: "dDecay of the token before", write: func(x *trial) bool {
			if x.g == nil || x.g.Terms.Decay.Data == nil {
				return false
			}
			g := &x.g.Terms.Decay
			was := *g
			was.Data = slices.Clone(g.Data)
			each(g, func(b, s, h int) { copy(g.Row(b, s, h), was.Row(b, max(s-1, 0), h)) })
			return g.S > 1
		}},
		{name: "an output row of the next row's weights", write: func(x *trial) bool {
			o := &x.a.Out
			next := attn.NewTyped(o.Type, attn.BHSD, o.B, o.S, o.H, o.D)
			each(o, func(b, s, h int) { next.Write(o.Read(make([]float32, o.D), b, s, h), b, s, h) })
			each(o, func(b, s, h int) { o.Write(next.Read(make([]float32, o.D), b, (s+1)%o.S, h), b, s, h) })
			return o.S > 1
		}},
		{name: "dQ n times too large where scores are far", write: func(x *trial) bool {
			return x.g != nil && x.far != "" && times(&x.g.Q, x.a.K.S)
		}},
		{name: "dV n times too large where scores are far", write: func(x *trial) bool {
			return x.g != nil && x.far != "" && times(&x.g.V, x.a.K.S)
		}},
		{name: "partial results without the log of the sum", write: func(x *trial) bool {
			if x.cuts == nil {
				return false
			}
			x.merge(definition{&x.p, true}, 0)
			return true
		}},
	}
}

// TestReferenceFinds checks that right results, rounded to the types of the outputs and merged from
// partial results, are within the bounds, and that plausible mistakes are not.
func TestReferenceFinds(t *testing.T) {
	tried, found := map[string]int{}, map[string]int{}
	for seed := range uint64(200) {
		x := newTrial(seed)
		r := refer(&x.p, x.a, x.g, x.cuts != nil)
		answer := func(by *reference) {
			x.spoil()
			if by.write(); x.cuts != nil {
				x.merge(definition{by.p, false}, 0)
			}
		}
		answer(r)
		if wrong := (tally{}).judge(r); wrong != nil {
			t.Fatalf("seed %d: %v: right answers are called wrong: %s", seed, x, wrong)
		}
		for _, m := range mutants() {
			if found[m.name] == enough {
				continue
			}
			p, a := x.p, *x.a
			by := r
			if m.compute != nil {
				if !m.compute(&p, &a) {
					continue
				}
				by = refer(&p, &a, x.g, x.cuts != nil)
			}
			answer(by)
			if m.write != nil && !m.write(x) {
				continue
			}
			tried[m.name]++
			if (tally{}).judge(r) != nil {
				found[m.name]++
			}
		}
	}
	for _, m := range mutants() {
		t.Logf("%s: found in %d of %d problems", m.name, found[m.name], tried[m.name])
		if found[m.name] < enough {
			t.Errorf("%s: found in %d of %d problems, want %d", m.name, found[m.name], tried[m.name], enough)
		}
	}
}

// enough is the number of problems in which a mutant must be found.
const enough = 3
