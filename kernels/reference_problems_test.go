package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"attnlab/attn"
)

// A trial is a problem with operands and outputs.
type trial struct {
	p    attn.Problem
	a    *attn.Args
	g    *attn.Grads // nil: forward only
	cuts []int       // bounds of the parts of the keys; their results are merged. nil: one call
	far  string      // the way in which scores are far from 0; empty: they are not
}

// String describes a trial in one line.
func (x *trial) String() string {
	far, a := x.far, x.a
	if far == "" {
		far = "near"
	}
	return fmt.Sprintf("%s; cuts %v, LSE D %d, QStart %v, KStart %v, KLen %v, QPos %v, RelativeClip %d, %+v",
		far, x.cuts, a.Stats.LSE.D, a.QStart, a.KStart, a.KLen, a.QPos, a.Terms.RelativeClip, x.p)
}

// A drawer draws trials.
type drawer struct{ *rand.Rand }

// newTrial draws the trial of a seed. It draws again if choices exclude each other.
func newTrial(seed uint64) *trial {
	d := drawer{rand.New(rand.NewPCG(seed, 0))}
	for {
		var x trial
		if d.IntN(2) == 0 {
			x = d.near()
		} else {
			x = d.far()
		}
		if x.p.Validate() == nil && x.p.Check(x.a) == nil && (x.g == nil || x.p.CheckGrads(x.a, x.g) == nil) {
			return &x
		}
	}
}

// oneIn reports true once in n times.
func (d drawer) oneIn(n int) bool { return d.IntN(n) == 0 }

// pick draws one of several values.
func pick[T any](d drawer, from ...T) T { return from[d.IntN(len(from))] }

// size draws 1 to most, small sizes more often.
func (d drawer) size(most int) int { return 1 + d.IntN(1+d.IntN(most)) }

// problem draws a problem without its score.
func (d drawer) problem() attn.Problem {
	p := attn.Problem{
		Batch: 1 + d.IntN(2), SeqQ: d.size(200), SeqKV: d.size(200), HeadsKV: 1 + d.IntN(2), Dim: d.size(40), DimV: d.size(40),
		Mask: pick(d, attn.Full(), attn.Full(), attn.Causal(), attn.CausalTopLeft(), attn.Window(d.IntN(50), d.IntN(50)), attn.Window(attn.Unbounded, d.IntN(9))),
	}
	if d.oneIn(5) { // decoding
		p.SeqQ = 1 + d.IntN(4)
	}
	p.HeadsQ = p.HeadsKV * (1 + d.IntN(3))
	for p.Batch*p.HeadsQ*p.SeqQ*p.SeqKV > 30000 {
		p.SeqQ, p.SeqKV = max(p.SeqQ*3/4, 1), max(p.SeqKV*7/8, 1)
	}
	switch d.IntN(8) {
	case 0:
		p.Mask = p.Mask.With(attn.BoolBitmap)
	case 1:
		p.Mask = p.Mask.With(attn.PackedBitmap)
	case 2:
		p.Mask = p.Mask.WithBlocks(pick(d, 1, 5, 16, 64))
	}
	p.Lengths = d.oneIn(4)
	return p
}

// wants draws by-products, or gradients, which fewer problems have.
func (d drawer) wants(p *attn.Problem) {
	for w := attn.WantLSE; w <= attn.WantScores; w <<= 1 {
		if d.oneIn(3) {
			p.Want |= w
		}
	}
	if d.oneIn(2) {
		p.Want = p.Want&(attn.WantLSE|attn.WantEntropy) | attn.WantGrad
		p.Q, p.KV, p.Out, p.Page = attn.F32, attn.F32, attn.F32, 0
	}
}

// near draws a problem of any features with scores near 0.
func (d drawer) near() trial {
	p := d.problem()
	if d.oneIn(4) {
		return d.rule()
	}
	if d.oneIn(8) {
		p.Op, p.Lengths = attn.OpLinear, false
		p.Mask = pick(d, attn.Full(), attn.Causal(), attn.CausalTopLeft())
		p.Linear = attn.Linear{Feature: pick(d, attn.EluPlusOne, attn.ReluPlusOne), Unnormalised: d.oneIn(3)}
		if d.oneIn(3) && !p.Linear.Unnormalised {
			p.Linear.Eps = 0.01
		}
		if d.oneIn(2) {
			p.Want = attn.WantGrad
		}
		x := trial{p: p, a: d.args(&p, false)}
		d.grads(&x)
		return x
	}
	s := &p.Score
	s.Scale = pick(d, 0, 0, 0.3, -1)
	s.Temp = pick(d, 0, 0, 0, 0.1, 0.5, 7, math.Inf(1), attn.Frozen)
	for term := attn.TermBias; term <= attn.TermMetric; term <<= 1 {
		if d.oneIn(4) {
			s.Terms |= term
		}
	}
	if s.Terms&attn.TermMetric != 0 && d.oneIn(2) {
		p.DimQ = d.size(40)
	}
	if d.oneIn(4) {
		s.Softcap = pick(d, 0.5, 3, 50)
	}
	if d.oneIn(4) {
		s.Rope = pick(d, attn.RopeInterleaved, attn.RopeHalves)
	}
	if d.oneIn(3) {
		p.KV, p.Q, p.Out = pick(d, attn.F16, attn.BF16, attn.I8), pick(d, attn.F32, attn.F16, attn.BF16), pick(d, attn.F32, attn.F16, attn.BF16)
	}
	p.Ragged = d.oneIn(5)
	if d.oneIn(5) {
		p.Page = pick(d, 8, 16)
	}
	d.wants(&p)
	x := trial{p: p, a: d.args(&p, false)}
	b := &x.a.Terms.Bias
	switch hide := d.IntN(6); {
	case p.Score.Terms&attn.TermBias == 0 || hide > 2:
	case hide == 0 && p.Want&attn.WantGrad == 0: // a few of +Inf
		b.Data[d.IntN(len(b.Data))] = float32(math.Inf(1))
	default: // -Inf hides keys: a row of them sees none; the lowest number gives them equal weights
		low := float32(math.Inf(-1))
		if d.oneIn(2) {
			low = -math.MaxFloat32
		}
		d.some(b, low)
	}
	d.grads(&x)
	return x
}

// some replaces some numbers of a bias by by. It replaces some whole rows if their weights are to
// be independent of the roundings of scores.
func (d drawer) some(b *attn.Tensor, by float32) {
	each(b, func(bb, s, h int) {
		whole, row := by <= -math.MaxFloat32 && d.oneIn(8), b.Row(bb, s, h)
		for j := range row {
			if whole || d.oneIn(4) {
				row[j] = by
			}
		}
	})
}

// normal fills a slice with numbers from a normal distribution.
func (d drawer) normal(to []float32) []float32 {
	for i := range to {
		to[i] = float32(d.NormFloat64())
	}
	return to
}

func (d drawer) layout() attn.Layout { return pick(d, attn.BHSD, attn.BSHD) }

// tensor draws an operand.
func (d drawer) tensor(b, s, h, n int) attn.Tensor {
	t := attn.New(d.layout(), b, s, h, n)
	d.normal(t.Data)
	return t
}

// typed returns an operand whose rows are NaN until they are written: rows that no call uses must
// not matter.
func (d drawer) typed(typ attn.DType, b, s, h, n int) attn.Tensor {
	t := attn.NewTyped(typ, d.layout(), b, s, h, n)
	nan := slices.Repeat([]float32{float32(math.NaN())}, n)
	each(&t, func(b, s, h int) { t.Write(nan, b, s, h) })
	return t
}

// each calls f for the rows of a tensor.
func each(t *attn.Tensor, f func(b, s, h int)) {
	for b := range t.B {
		for s := range t.S {
			for h := range t.H {
				f(b, s, h)
			}
		}
	}
}

// args draws operands of a problem. If all is set, all keys are in use.
func (d drawer) args(p *attn.Problem, all bool) *attn.Args {
	a := &attn.Args{}
	batch, nq, nk := p.Batch, p.SeqQ, p.SeqKV
	if d.oneIn(4) && !p.Ragged { // fewer keys than the capacity
		nq = 1 + d.IntN(nq)
	}
	if p.Ragged {
		batch = 1
		a.QStart = d.starts(p.Batch, p.SeqQ)
		nq = int(a.QStart[p.Batch]) + d.IntN(3)
	}
	a.Q, a.Out = d.typed(p.Q, batch, nq, p.HeadsQ, p.QDim()), attn.NewTyped(p.Out, d.layout(), batch, nq, p.HeadsQ, p.DimV)
	kb, rows := batch, nk
	switch {
	case p.Page != 0:
		each := (nk + p.Page - 1) / p.Page
		kb, rows = p.Batch*each+2, p.Page
		for _, page := range d.Perm(kb)[:p.Batch*each] {
			a.Pages = append(a.Pages, int32(page))
		}
	case p.Ragged:
		a.KStart = d.starts(p.Batch, p.SeqKV)
		rows = int(a.KStart[p.Batch]) + d.IntN(3)
	case d.oneIn(4):
		rows = 1 + d.IntN(nk)
	}
	a.K, a.V = d.typed(p.KV, kb, rows, p.HeadsKV, p.Dim), d.typed(p.KV, kb, rows, p.HeadsKV, p.DimV)
	if r := (&reference{p: p, a: a}); p.Lengths {
		var lengths []int32
		for b := range p.Batch {
			n := r.keys(b)
			a.QPos = append(a.QPos, int32(d.IntN(n+20)-10))
			lengths = append(lengths, int32(n-d.IntN(1+d.IntN(n+1))))
		}
		if !all {
			a.KLen = lengths
		}
	}
	fill := func(row []float32) { d.normal(row) }
	d.each(&trial{p: *p, a: a}, fill, fill)
	values := *a // each visits rows of K
	values.K = a.V
	d.each(&trial{p: *p, a: &values}, nil, fill)
	d.operands(p, a)
	return a
}

// starts draws the starts of sequences, with gaps.
func (d drawer) starts(n, most int) []int32 {
	to := []int32{int32(d.IntN(3))}
	for range n {
		to = append(to, to[len(to)-1]+int32(d.IntN(most+1)))
	}
	return to
}

// each changes the rows of Q and of K that are in use.
func (d drawer) each(x *trial, query, key func(row []float32)) {
	r, a := &reference{p: &x.p, a: x.a}, x.a
	change := func(t *attn.Tensor, batch, row, h int, f func([]float32)) {
		if f != nil {
			to := slices.Clone(t.Read(make([]float32, t.D), batch, row, h))
			f(to)
			t.Write(to, batch, row, h)
		}
	}
	for b := range x.p.Batch {
		for i := range r.queries(b) {
			batch, row := r.place(b, i)
			for h := range x.p.HeadsQ {
				change(&a.Q, batch, row, h, query)
			}
		}
		for j := range r.keys(b) {
			batch, row := r.keyPlace(b, j)
			for h := range x.p.HeadsKV {
				change(&a.K, batch, row, h, key)
			}
		}
	}
}

// grid returns the extents of a tensor that has a number for each query and key.
func grid(p *attn.Problem, a *attn.Args) (nq, nk int) {
	nq, nk = a.Q.S, a.K.S
	if p.Ragged {
		nq, nk = p.SeqQ, p.SeqKV
	}
	if p.Page != 0 {
		nk = p.SeqKV
	}
	return nq, nk
}

// operands draws masks and terms, and allocates by-products.
func (d drawer) operands(p *attn.Problem, a *attn.Args) {
	nq, nk := grid(p, a)
	t, score := &a.Terms, &p.Score
	or1 := func(n int) int { return pick(d, 1, n) }
	if side := 1; p.Mask.Bitmap != attn.NoBitmap {
		if p.Mask.Bitmap == attn.BlockBitmap {
			side = p.Mask.Block
		}
		m := &a.Allowed
		m.B, m.S, m.H, m.D = or1(p.Batch), or1((nq+side-1)/side), or1(p.HeadsQ), (nk+side-1)/side
		m.SH, m.SS, m.SB = m.D, m.D*m.H, m.D*m.H*m.S
		show := pick(d, 2, 3, 10) // one key in show is hidden
		n := m.B * m.SB
		m.Bool = make([]bool, n)
		for i := range m.Bool {
			m.Bool[i] = !d.oneIn(show)
		}
		if p.Mask.Bitmap != attn.BoolBitmap {
			m.Words = make([]uint64, (n+63)/64)
			for i, x := range m.Bool {
				if x {
					m.Words[i/64] |= 1 << (i % 64)
				}
			}
			m.Bool = nil
		}
	}
	if score.Terms&attn.TermBias != 0 {
		t.Bias = d.tensor(or1(p.Batch), or1(nq), or1(p.HeadsQ), or1(nk))
	}
	if score.Terms&attn.TermALiBi != 0 {
		t.Slopes = make([]float32, p.HeadsQ)
		for h := range t.Slopes {
			t.Slopes[h] = float32(d.Float64() * 0.2)
		}
	}
	if score.Terms&attn.TermSinks != 0 {
		if t.Sinks = d.normal(make([]float32, p.HeadsQ)); d.oneIn(4) {
			t.Sinks[0] = float32(math.Inf(-1))
		}
	}
	if score.Terms&attn.TermRelative != 0 {
		rows := max(nq+nk-1, 0)
		if d.oneIn(2) {
			t.RelativeClip = 1 + d.IntN(20)
			rows = 2*t.RelativeClip + 1
		}
		t.Relative = d.tensor(1, rows, or1(p.HeadsQ), p.QDim())
	}
	if score.Terms&attn.TermMetric != 0 {
		t.Metric = d.tensor(1, p.QDim(), or1(p.HeadsQ), p.Dim)
		for i := range t.Metric.Data {
			t.Metric.Data[i] /= float32(math.Sqrt(float64(p.QDim())))
		}
	}
	if score.Rope != attn.NoRope {
		positions, r := 1, &reference{p: p, a: a}
		for b := range p.Batch {
			if a.QPos != nil { // tables have no rows for positions before 0
				a.QPos[b] = max(a.QPos[b], 0)
			}
			positions = max(positions, r.position(b)+r.queries(b), r.keys(b))
		}
		t.Cos, t.Sin = attn.RopeTables(10000, positions, 2*d.IntN(min(p.QDim(), p.Dim)/2+1))
	}
	s, batch, rows := &a.Stats, a.Q.B, a.Q.S
	stat := func(to *attn.Tensor, w attn.Want, n int) {
		if p.Want&w != 0 {
			*to = attn.New(d.layout(), batch, rows, p.HeadsQ, n)
		}
	}
	stat(&s.LSE, attn.WantLSE, 1+d.IntN(2))
	stat(&s.Mean, attn.WantMean, 1)
	stat(&s.Entropy, attn.WantEntropy, 1)
	stat(&s.Max, attn.WantMax, 1)
	stat(&s.Weights, attn.WantWeights, nk)
	stat(&s.Scores, attn.WantScores, nk)
	if p.Want&attn.WantArgMax != 0 {
		s.ArgMax = make([]int32, batch*rows*p.HeadsQ)
	}
	if p.Want&attn.WantGrad != 0 && p.Op == attn.OpSoftmax && s.LSE.Data == nil {
		s.LSE = attn.New(d.layout(), batch, rows, p.HeadsQ, 1+d.IntN(2))
	}
}

// grads draws incoming gradients, and allocates outgoing ones.
func (d drawer) grads(x *trial) {
	p, a := &x.p, x.a
	if p.Want&attn.WantGrad == 0 {
		return
	}
	g := &attn.Grads{}
	x.g = g
	row := func(to *attn.Tensor, n int) {
		r := &reference{p: p, a: a}
		*to = d.typed(attn.F32, a.Q.B, a.Q.S, r.outHeads(), n)
		for b := range p.Batch {
			for i := range r.queries(b) {
				batch, row := r.place(b, i)
				for h := range to.H {
					to.Write(d.normal(make([]float32, n)), batch, row, h)
				}
			}
		}
	}
	if !d.oneIn(10) || p.Op == attn.OpLinear {
		row(&g.Out, p.DimV)
	}
	if d.oneIn(3) && p.Op == attn.OpSoftmax {
		row(&g.LSE, 1)
	}
	if d.oneIn(2) && a.Stats.Entropy.Data != nil {
		row(&g.Entropy, 1)
	}
	shape := func(to, of *attn.Tensor) {
		if of.Data != nil && !d.oneIn(10) {
			*to = attn.New(d.layout(), of.B, of.S, of.H, of.D)
		}
	}
	shape(&g.Q, &a.Q)
	shape(&g.K, &a.K)
	shape(&g.V, &a.V)
	shape(&g.Terms.Bias, &a.Terms.Bias)
	shape(&g.Terms.Relative, &a.Terms.Relative)
	shape(&g.Terms.Metric, &a.Terms.Metric)
	shape(&g.Terms.Decay, &a.Terms.Decay)
	shape(&g.Terms.Beta, &a.Terms.Beta)
	if p.Carries() && a.StateOut != nil {
		g.StateIn = make([]float32, len(a.StateOut))
		g.StateOut = d.normal(make([]float32, len(a.StateOut)))
	}
	if a.Terms.Slopes != nil {
		g.Terms.Slopes = make([]float32, p.HeadsQ)
	}
	if a.Terms.Sinks != nil {
		g.Terms.Sinks = make([]float32, p.HeadsQ)
	}
}

// Scores far from 0 are rounded to coarse steps. These are ways to draw them. Only with anything do
// results depend on the rounding.
const (
	zeroQueries = "zero queries" // all products of a row are 0
	equalKeys   = "equal keys"   // all products of a row are the same number
	oneLeads    = "one leads"    // a key of each row leads the others by more than any rounding
	fewLeft     = "few left"     // most keys are far below the others, which are near 0
	anything    = "anything"     // few numbers are judged, except near 1e4
)

// far draws a problem whose scores are far from 0.
func (d drawer) far() trial {
	if d.oneIn(8) {
		return d.positions()
	}
	if d.oneIn(8) {
		return d.products()
	}
	way, shift := pick(d, zeroQueries, equalKeys, oneLeads, fewLeft), pick(d, 1e4, -1e4, 1e9, -1e9, 1e20, -1e20, -math.MaxFloat32)
	temp := pick(d, 0, 0, 0.1, 7)
	switch {
	case way == fewLeft:
		shift = -math.Abs(shift)
	case d.oneIn(12):
		way = anything
	case d.oneIn(12):
		way, shift, temp = anything, pick(d, 1e4, -1e4), pick[float64](d, 0, 7)
	}
	p := d.farProblem(temp)
	if way == anything { // one such problem must not dominate a run of few trials
		p.SeqQ = min(p.SeqQ, 8)
	}
	s := &p.Score
	s.Terms |= attn.TermBias
	if way != equalKeys && d.oneIn(3) { // terms that would give equal keys different scores
		s.Terms |= pick(d, attn.TermRelative, attn.TermMetric)
		s.Rope = pick(d, attn.NoRope, attn.RopeInterleaved, attn.RopeHalves)
	}
	merged := d.oneIn(4)
	if merged {
		p.Ragged, p.Page, p.Lengths, p.Want, p.KV = false, 0, true, attn.WantLSE, attn.F32
		p.Mask.Bitmap, p.Mask.Block = attn.NoBitmap, 0
		s.Rope, s.Terms = attn.NoRope, s.Terms&^attn.TermRelative
	}
	x := trial{p: p, a: d.args(&p, merged), far: fmt.Sprintf("%s, %g", way, shift)}
	if merged {
		nk := x.a.K.S
		x.cuts = []int{0, nk}
		for range 1 + d.IntN(3) {
			x.cuts = append(x.cuts, d.IntN(nk+1))
		}
		slices.Sort(x.cuts)
		x.a.Stats.LSE = attn.New(d.layout(), p.Batch, x.a.Q.S, p.HeadsQ, 2)
	}
	switch way {
	case zeroQueries:
		d.each(&x, func(q []float32) { clear(q) }, nil)
	case equalKeys:
		same := d.normal(make([]float32, p.Dim))
		d.each(&x, nil, func(k []float32) { copy(k, same) })
	}
	switch b := &x.a.Terms.Bias; way {
	case oneLeads:
		d.lead(&x, shift)
	case fewLeft:
		d.some(b, float32(shift))
	default:
		d.shift(b, float32(shift))
	}
	d.farSinks(&x)
	d.grads(&x)
	return x
}

// farProblem draws the common part of problems with scores far from 0.
func (d drawer) farProblem(temp float64) attn.Problem {
	p := d.problem()
	p.Score.Temp = temp
	if d.oneIn(3) {
		p.Score.Terms |= attn.TermSinks
	}
	if d.oneIn(8) {
		p.Score.Softcap = 50
	}
	p.Ragged = d.oneIn(8)
	if d.oneIn(8) {
		p.Page = 16
	}
	if d.oneIn(8) {
		p.KV = pick(d, attn.F16, attn.BF16, attn.I8)
	}
	d.wants(&p)
	return p
}

// shift adds a number to a whole bias of zeros, or to its numbers for some queries or some keys.
func (d drawer) shift(b *attn.Tensor, by float32) {
	clear(b.Data)
	queries, keys := make([]bool, b.S), make([]bool, b.D)
	some := d.IntN(3)
	for i := range queries {
		queries[i] = some != 1 || d.oneIn(2)
	}
	for j := range keys {
		keys[j] = some != 2 || d.oneIn(2)
	}
	each(b, func(bb, s, h int) {
		for j, row := 0, b.Row(bb, s, h); j < len(row); j++ {
			if queries[s] && keys[j] {
				row[j] = by
			}
		}
	})
}

// lead returns a bias that makes one key of each row lead by at least 2^13 steps of float32, so
// that the weights of the others are 0.
func (d drawer) lead(x *trial, shift float64) {
	p, a := &x.p, x.a
	nq, nk := grid(p, a)
	b := attn.New(attn.BSHD, p.Batch, nq, p.HeadsQ, nk)
	ahead := max(math.Abs(shift)/1024, 1000)
	if shift == -math.MaxFloat32 {
		ahead = math.MaxFloat32
	}
	r := &reference{p: p, a: a}
	each(&b, func(bb, s, h int) {
		row := b.Row(bb, s, h)
		for j := range row {
			row[j] = float32(shift)
		}
		if s >= r.queries(bb) {
			return
		}
		var seen []int
		for j := range r.keys(bb) {
			if r.visible(bb, s, h, j) {
				seen = append(seen, j)
			}
		}
		if len(seen) > 0 {
			row[pick(d, seen...)] = float32(shift + ahead)
		}
	})
	a.Terms.Bias = b
}

// farSinks moves sinks away from 0, and from the scores.
func (d drawer) farSinks(x *trial) {
	if sinks := x.a.Terms.Sinks; d.oneIn(3) {
		for h := range sinks {
			sinks[h] = float32(pick(d, 3e3, -3e3, 3e5, -3e5, 3e10, -3e10))
		}
	}
}

// products draws a problem with products of about 1e9: either all keys are equal, or one of random
// keys leads.
func (d drawer) products() trial {
	p := d.farProblem(pick(d, 0, 0, 0.1, 7))
	p.Score.Softcap, p.KV = 0, attn.F32
	x := trial{p: p, a: d.args(&p, false), far: "products"}
	same := d.normal(make([]float32, p.Dim))
	equal := d.oneIn(2)
	big := func(row []float32) {
		for i := range row {
			row[i] *= 3e4
		}
	}
	d.each(&x, big, func(k []float32) {
		if equal {
			copy(k, same)
		}
		big(k)
	})
	d.farSinks(&x)
	d.grads(&x)
	return x
}

// positions draws a problem whose queries have positions far from the keys, mostly with slopes that
// leave weights to be judged.
func (d drawer) positions() trial {
	p := d.farProblem(pick(d, 0, 0, 0.1, 7))
	p.Score.Terms |= attn.TermALiBi
	p.Lengths = true
	if p.Mask.Band { // no key would be seen
		p.Mask.Left, p.Mask.Right = attn.Unbounded, attn.Unbounded
	}
	x := trial{p: p, a: d.args(&p, false), far: "positions"}
	for b := range x.a.QPos {
		x.a.QPos[b] = pick[int32](d, 1, -1) * pick[int32](d, 1<<30, 1<<30, 1<<20, 10000)
	}
	for h := range x.a.Terms.Slopes {
		x.a.Terms.Slopes[h] = pick[float32](d, 0x1p-30, 0x1p-24, 0x1p-22)
		if d.oneIn(20) {
			x.a.Terms.Slopes[h] = 1
		}
	}
	d.farSinks(&x)
	d.grads(&x)
	return x
}
