package oracle

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"attnlab/attn"
)

// A Verdict is the outcome of a comparison.
//
// Each number has a tolerance and a size, the sum of the sizes of its terms. If the tolerance is at
// most 2^-8 of the size, the number is judged. If it is wider, the comparison shows little: the
// number must still be within the tolerance, but it counts as not judged. Beyond a quarter of the
// size a first-order tolerance means nothing, and the number need only be finite where the
// definition is. Absolute tolerances, for numbers near the bottom of float32, do not count here.
type Verdict struct {
	Rows    int // rows compared
	Numbers int // numbers compared
	Judged  int // numbers whose tolerance is narrow

	// Worst is the largest |error| / tolerance. It is +Inf if a NaN, an infinity or an exact value
	// differs. The answer is right if Worst <= 1.
	Worst float64
	Where string  // the number with the largest ratio: operand, index, got, want, tolerance
	Out   float64 // the largest ratio in a.Out alone
}

// Join adds another comparison to the verdict.
func (v *Verdict) Join(w Verdict) {
	v.Rows, v.Numbers, v.Judged, v.Out = v.Rows+w.Rows, v.Numbers+w.Numbers, v.Judged+w.Judged, max(v.Out, w.Out)
	if !(w.Worst <= v.Worst) {
		v.Worst, v.Where = w.Worst, w.Where
	}
}

// A number is not judged if its tolerance exceeds wide times its size. Any finite number is
// accepted if the tolerance exceeds void times its size.
const wide, void = 0x1p-8, 0x1p-2

// Judge compares the given rows of a.Out, and of every member of a.Stats that is set, with the
// definition. It also compares the states of StateOut that these rows read, and those of sequences
// without tokens.
func (o *Oracle) Judge(rows []Index) Verdict {
	v := Verdict{Rows: len(rows)}
	buf := make([]float32, o.p.DimV)
	o.visit(rows, func(i int, r *Row) { v.row(&o.p, o.a, rows[i], r, buf) }, func(at place, want estimates) { v.state(&o.p, o.a, at, want) })
	return v
}

// StateTolerances returns the tolerance of each number of StateOut.
func (o *Oracle) StateTolerances() []float64 {
	p := &o.p
	all := make([]float64, len(o.a.StateOut))
	o.visit(All(p, o.a), func(int, *Row) {}, func(at place, want estimates) {
		head, own, slot := at.b*p.StateHeads()+at.s, p.Dim*p.DimV, all[at.slot*p.StateLen():]
		copy(slot[head*own:][:own], want.tol)
		copy(slot[p.Batch*p.StateHeads()*own:][head*(len(want.tol)-own):], want.tol[own:])
	})
	return all
}

// A place is a state in StateOut: batch entry, state head, and its number among the snapshots.
type place struct{ b, s, slot int }

// visit computes rows and the states in StateOut that they read, in the order that costs least. It
// calls row for each row, with its place in the list, and state for each state.
func (o *Oracle) visit(rows []Index, row func(i int, r *Row), state func(at place, want estimates)) {
	if o.recurrence == nil {
		for i, at := range rows {
			row(i, o.Row(at))
		}
		return
	}
	type stop struct {
		at     place
		tokens int // tokens written
		row    int // place in rows, -1 for a state
	}
	p, a := &o.p, o.a
	var stops []stop
	heads := make(map[place]bool)
	for i, at := range rows {
		head := place{b: at.B, s: stateHead(p, at.H)}
		heads[head] = true
		stops = append(stops, stop{head, at.I + 1, i})
	}
	for b := range p.Batch {
		for s := range p.StateHeads() {
			n := a.Keys(p, b)
			if a.StateOut == nil || n > 0 && !heads[place{b: b, s: s}] {
				continue
			}
			for slot := range max(1, p.Linear.Snapshots) {
				stops = append(stops, stop{place{b, s, slot}, max(0, n-slot), -1})
			}
		}
	}
	slices.SortStableFunc(stops, func(x, y stop) int {
		return cmp.Or(cmp.Compare(x.at.b, y.at.b), cmp.Compare(x.at.s, y.at.s), cmp.Compare(x.tokens, y.tokens))
	})
	for _, x := range stops {
		if x.row >= 0 {
			row(x.row, o.Row(rows[x.row]))
			continue
		}
		o.recurrence.reach(x.at.b, x.at.s, x.tokens)
		state(x.at, o.recurrence.snapshot())
	}
}

// Answers are an oracle's answers for rows of a call. They apply to every call of the same problem
// with the same inputs.
type Answers struct {
	p     attn.Problem
	rows  []Index
	right []Row

	places []place
	states []estimates // by place
}

// Answers returns the answers for rows. It keeps only what Judge compares with the outputs that the
// call has.
func (o *Oracle) Answers(rows []Index) *Answers {
	k := &Answers{p: o.p, rows: rows, right: make([]Row, len(rows))}
	kept := func(x []float64, yes bool) []float64 {
		if yes {
			return slices.Clone(x)
		}
		return nil
	}
	s := &o.a.Stats
	weights, scores := s.Weights.Data != nil, s.Scores.Data != nil || s.ArgMax != nil
	o.visit(rows, func(i int, r *Row) {
		k.right[i] = *r
		to := &k.right[i]
		to.Out, to.TolOut, to.SizeOut = kept(r.Out, true), kept(r.TolOut, true), kept(r.SizeOut, true)
		to.Weights, to.TolWeights, to.SizeWeights = kept(r.Weights, weights), kept(r.TolWeights, weights), kept(r.SizeWeights, weights)
		to.Scores, to.TolScores = kept(r.Scores, scores), kept(r.TolScores, scores)
	}, func(at place, want estimates) { k.places, k.states = append(k.places, at), append(k.states, want) })
	return k
}

// Len returns the number of numbers that are kept.
func (k *Answers) Len() int {
	n := 0
	for i := range k.right {
		r := &k.right[i]
		n += 3*(len(r.Out)+len(r.Weights)) + 2*len(r.Scores) + 36
	}
	for _, s := range k.states {
		n += 3 * len(s.x)
	}
	return n
}

// Judge is Oracle.Judge for a call with the same inputs, and with the outputs that the oracle's
// call had.
func (k *Answers) Judge(a *attn.Args) Verdict {
	v := Verdict{Rows: len(k.rows)}
	buf := make([]float32, k.p.DimV)
	for i, at := range k.rows {
		v.row(&k.p, a, at, &k.right[i], buf)
	}
	for i, at := range k.places {
		v.state(&k.p, a, at, k.states[i])
	}
	return v
}

// state compares a state in a.StateOut with the definition.
func (v *Verdict) state(p *attn.Problem, a *attn.Args, at place, want estimates) {
	name := fmt.Sprintf("StateOut %d", at.slot)
	eachRow(p, name, at, a.StateOut[at.slot*p.StateLen():], want, func(name string, at Index, got []float32, want estimates) {
		v.vector(name, at, got, want)
	})
}

// eachRow calls f for each row of a state in a slice like Args.StateIn. at.I is the row.
func eachRow(p *attn.Problem, name string, at place, from []float32, want estimates, f func(name string, at Index, got []float32, want estimates)) {
	d, dv, head := p.Dim, p.DimV, at.b*p.StateHeads()+at.s
	for i := range d {
		f(name, Index{at.b, at.s, i}, from[(head*d+i)*dv:][:dv], want.part(i*dv, dv))
	}
	if z := d * dv; len(want.x) > z {
		f(name+" z", Index{B: at.b, H: at.s}, from[p.Batch*p.StateHeads()*z+head*d:][:d], want.part(z, d))
	}
}

// row compares one row of a call with the definition.
func (v *Verdict) row(p *attn.Problem, a *attn.Args, at Index, r *Row, buf []float32) {
	s := &a.Stats
	b, row := a.QRow(p, at.B, at.I)
	v.Out = max(v.Out, v.vector("Out", at, a.Out.Read(buf, b, row, at.H), estimates{r.Out, r.TolOut, r.SizeOut}))
	if s.LSE.Data != nil {
		v.number("LSE", at, 0, s.LSE.LogSum(b, row, at.H).Value(), r.LSE, r.TolLSE, math.Abs(r.LSE)+1)
	}
	for _, n := range [...]struct {
		name            string
		t               *attn.Tensor
		want, tol, size float64
	}{
		{"Mean", &s.Mean, r.Mean, r.TolMean, r.SizeMean},
		{"Entropy", &s.Entropy, r.Entropy, r.TolEntropy, math.Abs(r.Entropy) + 1},
		{"Max", &s.Max, r.Max, r.TolMax, math.Inf(1)},
	} {
		if n.t.Data != nil {
			v.number(n.name, at, 0, float64(n.t.Row(b, row, at.H)[0]), n.want, n.tol, n.size)
		}
	}
	if s.Weights.Data != nil {
		v.vector("Weights", at, s.Weights.Row(b, row, at.H), estimates{r.Weights, r.TolWeights, r.SizeWeights})
	}
	if s.Scores.Data != nil {
		for j, got := range s.Scores.Row(b, row, at.H) {
			v.number("Scores", at, j, float64(got), r.Scores[j], r.TolScores[j], math.Inf(1))
		}
	}
	if s.ArgMax != nil {
		if j := int(s.ArgMax[(b*a.Q.S+row)*p.OutHeads()+at.H]); !r.MayBeFirst(j) && !math.IsInf(v.Worst, 1) {
			v.Worst = math.Inf(1)
			v.Where = fmt.Sprintf("ArgMax[batch %d, head %d, query %d]: key %d, and the largest score is %v", at.B, at.H, at.I, j, r.Max)
		}
	}
}

// vector compares the numbers of a row and returns the largest error over the tolerance.
func (v *Verdict) vector(name string, at Index, got []float32, want estimates) (worst float64) {
	for c := range want.x {
		worst = max(worst, v.number(name, at, c, float64(got[c]), want.x[c], want.tol[c], want.size[c]))
	}
	return worst
}

// number compares one number and returns its error over the tolerance. size is the sum of the sizes
// of the number's terms, or +Inf if the number is always judged.
func (v *Verdict) number(name string, at Index, c int, got, want, tol, size float64) (ratio float64) {
	ratio = Ratio(got, want, tol)
	v.Numbers++
	switch {
	case !(tol > wide*size): // also true if tol or size is NaN
		v.Judged++
	case tol > void*size && !math.IsInf(ratio, 1):
		ratio = 0
	}
	if !(ratio <= v.Worst) {
		v.Worst = ratio
		v.Where = fmt.Sprintf("%s[batch %d, head %d, query %d, %d]: got %v, want %v, tolerance %.3g", name, at.B, at.H, at.I, c, got, want, tol)
	}
	return ratio
}

// Ratio returns |got-want|/tol. It is 0 if both are equal or both are NaN. It is +Inf if they
// differ and tol is 0, or if one is NaN or infinite and the other is not the same. It is never NaN.
func Ratio(got, want, tol float64) float64 {
	switch {
	case got == want, math.IsNaN(got) && math.IsNaN(want):
		return 0
	case math.IsNaN(got), math.IsNaN(want), math.IsInf(got, 0), math.IsInf(want, 0), !(tol > 0):
		return math.Inf(1)
	}
	return math.Abs(got-want) / tol
}

// All lists every row of a call.
func All(p *attn.Problem, a *attn.Args) []Index {
	var rows []Index
	for b := range p.Batch {
		for h := range p.OutHeads() {
			for i := range a.Queries(p, b) {
				rows = append(rows, Index{b, h, i})
			}
		}
	}
	return rows
}

// mostSteps limits the numbers of states that the rows of a sample take to compute, over all
// tokens.
const mostSteps = 1 << 28

// Sample returns n rows of a call: the first and the last query of random heads, then random rows
// from seed. It returns all rows if there are no more than n. With a rule or a state, a row takes
// all tokens before it. The rows of a large call are then of few state heads, and there may be
// fewer than n.
func Sample(p *attn.Problem, a *attn.Args, n int, seed uint64) []Index {
	total := 0
	for b := range p.Batch {
		total += p.OutHeads() * a.Queries(p, b)
	}
	if total <= n {
		return All(p, a)
	}
	rng := rand.New(rand.NewPCG(seed, 0x0a77))
	draw := func() Index { return Index{B: rng.IntN(p.Batch), H: rng.IntN(p.OutHeads())} }
	if recurs(p, a) {
		group, heads := p.OutHeads()/p.StateHeads(), affordable(p, a, rng)
		total = 0
		for _, x := range heads {
			total += group * a.Queries(p, x.b)
		}
		n = min(n, total)
		draw = func() Index {
			x := heads[rng.IntN(len(heads))]
			return Index{B: x.b, H: x.s*group + rng.IntN(group)}
		}
	}
	seen := make(map[Index]bool, n)
	rows := make([]Index, 0, n)
	for len(rows) < n {
		at := draw()
		queries := a.Queries(p, at.B)
		if queries == 0 {
			continue
		}
		switch at.I = rng.IntN(queries); len(rows) {
		case 0:
			at.I = 0
		case 1:
			at.I = queries - 1
		}
		if !seen[at] {
			seen[at] = true
			rows = append(rows, at)
		}
	}
	return rows
}

// affordable returns random state heads that have tokens: as many as mostSteps allows, but one or
// more.
func affordable(p *attn.Problem, a *attn.Args, rng *rand.Rand) []place {
	var all []place
	for b := range p.Batch {
		for s := range p.StateHeads() {
			if a.Queries(p, b) > 0 {
				all = append(all, place{b: b, s: s})
			}
		}
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	steps := 0
	for i, x := range all {
		if steps += a.Queries(p, x.b) * p.Dim * (p.DimV + 1); i > 0 && steps > mostSteps {
			return all[:i]
		}
	}
	return all
}
