package attn

import (
	"errors"
	"fmt"
	"math"
)

// Args are the operands of one call.
type Args struct {
	Q, K, V, Out Tensor

	// With Ragged: sequence b is rows QStart[b] to QStart[b+1] of Q, Out and Stats, and rows
	// KStart[b] to KStart[b+1] of K and V.
	QStart, KStart []int32

	// With Lengths, one number for each batch entry: the keys in use, and the position of the first
	// query, from -2^30 to 2^30. A nil KLen uses all keys; a nil QPos uses the mask's alignment.
	KLen, QPos []int32

	// With Page: the page table. K and V are pools [page, row, head, dim], and key j of batch entry
	// b is row j%Page of page Pages[b*PagesEach+j/Page].
	Pages []int32

	Allowed Bits     // the element mask
	Terms   Operands // operands of score terms, and of the rule of a linear problem
	Stats   Stats    // by-products to write

	// The state of a problem that Carries one: before the first token and after the last. A state
	// is [batch][state head][dim][dim_v]; a normalised problem has [batch][state head][dim] behind
	// it. A nil StateIn is zero; a nil StateOut is not written.
	//
	// StateOut holds max(1, Snapshots) states. State i is that after each sequence but its last i
	// tokens, and the incoming state if it has fewer. The first may be StateIn itself.
	StateIn, StateOut []float32
}

// Operands are the operands of score terms, and of the rule of a linear problem.
type Operands struct {
	Decay Tensor // [batch, token, value head, 1 or dim]: natural logarithms of the gates
	Beta  Tensor // [batch, token, value head or 1, 1]

	Bias     Tensor    // [batch, query, head, key], each extent the problem's or 1
	Slopes   []float32 // ALiBi, one for each query head
	Sinks    []float32 // one for each query head: the z of a key without a value
	Relative Tensor    // [1, row, head or 1, dim of Q]; method Args.Relative returns the row

	// A positive RelativeClip limits distances to -RelativeClip..RelativeClip; the table then has
	// 2*RelativeClip+1 rows. With 0 it has n_q+n_k-1 rows, one for every distance.
	RelativeClip int

	Metric   Tensor // [1, dim of Q, head or 1, dim of K]
	Cos, Sin Tensor // [batch or 1, position, 1, angle]
}

// Stats are by-products. A call writes each one that is set. Row values have shape [batch, query,
// head, 1].
type Stats struct {
	// LSE has shape [batch, query, head, 1], or [batch, query, head, 2] for a [LogSum].
	LSE Tensor

	Mean, Entropy, Max Tensor
	Weights, Scores    Tensor // [batch, query, head, key]

	// ArgMax is [batch][query][head]: the first key with the largest score, or -1 where no key is
	// visible.
	ArgMax []int32
}

// Queries returns the number of query rows of batch entry b.
func (a *Args) Queries(p *Problem, b int) int {
	if p.Ragged {
		return int(a.QStart[b+1] - a.QStart[b])
	}
	return a.Q.S
}

// Keys returns the number of keys in use in batch entry b.
func (a *Args) Keys(p *Problem, b int) int {
	if a.KLen != nil {
		return int(a.KLen[b])
	}
	return a.room(p, b)
}

// room returns the number of key rows that batch entry b has, in use or not.
func (a *Args) room(p *Problem, b int) int {
	switch {
	case p.Page != 0:
		return p.SeqKV
	case p.Ragged:
		return int(a.KStart[b+1] - a.KStart[b])
	}
	return a.K.S
}

// QRow returns the tensor batch and row that hold query i of batch entry b in Q, Out and Stats.
func (a *Args) QRow(p *Problem, b, i int) (batch, row int) {
	if p.Ragged {
		return 0, int(a.QStart[b]) + i
	}
	return b, i
}

// KRow returns the tensor batch and row that hold key j of batch entry b in K and V.
func (a *Args) KRow(p *Problem, b, j int) (batch, row int) {
	switch {
	case p.Page != 0:
		return int(a.Pages[b*p.PagesEach()+j/p.Page]), j % p.Page
	case p.Ragged:
		return 0, int(a.KStart[b]) + j
	}
	return b, j
}

// PagesEach returns the number of page table entries of each batch entry.
func (p *Problem) PagesEach() int {
	if p.Page == 0 {
		return 0
	}
	return (p.SeqKV + p.Page - 1) / p.Page
}

// grid returns the extents, in queries and keys, of operands with a number for each pair.
func (a *Args) grid(p *Problem) (nq, nk int) {
	nq, nk = a.Q.S, a.K.S
	if p.Ragged {
		nq, nk = p.SeqQ, p.SeqKV
	}
	if p.Page != 0 {
		nk = p.SeqKV
	}
	return nq, nk
}

// Pos returns the position of the first query of batch entry b. Query i is at position Pos+i.
func (a *Args) Pos(p *Problem, b int) int {
	switch {
	case a.QPos != nil:
		return int(a.QPos[b])
	case p.Mask.Align == TopLeft:
		return 0
	}
	return a.Keys(p, b) - a.Queries(p, b)
}

// Sink returns the z of the sink of query head h, or -Inf if the problem has no sinks.
func (a *Args) Sink(p *Problem, h int) float32 {
	if p.Score.Terms&TermSinks == 0 {
		return float32(math.Inf(-1))
	}
	return a.Terms.Sinks[h]
}

// Visible returns the interval lo <= j < hi of keys that the band shows to query i of batch entry
// b.
func (a *Args) Visible(p *Problem, b, i int) (lo, hi int) {
	return p.Mask.Keys(a.Pos(p, b)+i, a.Keys(p, b))
}

// Relative returns the row of Terms.Relative that query i and key j of batch entry b use.
func (a *Args) Relative(p *Problem, b, i, j int) int {
	if c := a.Terms.RelativeClip; c > 0 {
		return min(max(j-i-a.Pos(p, b), -c), c) + c
	}
	return j - i + a.Queries(p, b) - 1
}

// Check reports what is wrong with the operands of a call. The error names the operand, what it got
// and what it wants. Check allocates nothing when the operands are right.
func (p *Problem) Check(a *Args) error {
	if a == nil {
		return errors.New("args: nil")
	}
	nq, nk := a.Q.S, a.K.S
	qb, kb := p.Batch, p.Batch
	if p.Ragged {
		qb, kb = 1, 1
		if n := max(nq, nk); n > math.MaxInt32 {
			return fmt.Errorf("Q, K: %d and %d rows in a ragged batch, want at most %d: QStart and KStart are numbers of 32 bits", nq, nk, math.MaxInt32)
		}
	} else if nq > p.SeqQ || nq < 0 {
		return fmt.Errorf("Q: %d rows, the plan's capacity is %d", nq, p.SeqQ)
	}
	if p.Page != 0 {
		if kb, nk = a.K.B, p.Page; kb > math.MaxInt32 {
			return fmt.Errorf("K: a pool of %d pages, want at most %d: Pages are numbers of 32 bits", kb, math.MaxInt32)
		}
	} else if !p.Ragged && (nk > p.SeqKV || nk < 0) {
		return fmt.Errorf("K: %d rows, the plan's capacity is %d", nk, p.SeqKV)
	}
	if err := a.Q.fits("Q", p.Q, qb, nq, p.HeadsQ, p.QDim()); err != nil {
		return err
	}
	if err := a.K.fits("K", p.KV, kb, nk, p.HeadsKV, p.Dim); err != nil {
		return err
	}
	if err := a.V.fits("V", p.KV, kb, nk, p.ValueHeads(), p.DimV); err != nil {
		return err
	}
	if err := a.output("Out", &a.Out, p.Out, qb, nq, p.OutHeads(), p.DimV); err != nil {
		return err
	}
	if err := p.checkRagged(a); err != nil {
		return err
	}
	if err := p.checkLengths(a); err != nil {
		return err
	}
	if err := p.checkPages(a); err != nil {
		return err
	}
	if err := p.checkMask(a); err != nil {
		return err
	}
	if err := p.checkTerms(a); err != nil {
		return err
	}
	if err := p.checkRule(a); err != nil {
		return err
	}
	return p.checkStats(a)
}

func (a *Args) output(name string, t *Tensor, typ DType, b, s, h, d int) error {
	if err := t.fits(name, typ, b, s, h, d); err != nil {
		return err
	}
	if err := t.writable(name); err != nil {
		return err
	}
	return a.disjointFromInputs(name, t.region())
}

// disjointFromInputs returns an error if an output overlaps an operand that a call reads.
func (a *Args) disjointFromInputs(name string, output region) error {
	t := &a.Terms
	names := [...]string{
		"Q", "K", "K.Scale", "V", "V.Scale", "QStart", "KStart", "KLen", "QPos", "Pages", "Allowed", "Allowed",
		"Bias", "Slopes", "Sinks", "Relative", "Metric", "Cos", "Sin", "Decay", "Beta", "StateIn",
	}
	inputs := [...]region{
		a.Q.region(), a.K.region(), regionOf(a.K.Scale), a.V.region(), regionOf(a.V.Scale), regionOf(a.QStart), regionOf(a.KStart), regionOf(a.KLen), regionOf(a.QPos),
		regionOf(a.Pages), regionOf(a.Allowed.Bool), regionOf(a.Allowed.Words), t.Bias.region(), regionOf(t.Slopes), regionOf(t.Sinks), t.Relative.region(),
		t.Metric.region(), t.Cos.region(), t.Sin.region(), t.Decay.region(), t.Beta.region(), regionOf(a.StateIn),
	}
	for i, input := range inputs {
		if err := output.disjoint(name, input, names[i]); err != nil {
			return err
		}
	}
	return nil
}

func (p *Problem) checkRagged(a *Args) error {
	if !p.Ragged {
		if a.QStart != nil || a.KStart != nil {
			return errors.New("QStart, KStart: given, but the problem is not Ragged")
		}
		return nil
	}
	if err := starts("QStart", a.QStart, p.Batch, a.Q.S, p.SeqQ); err != nil {
		return err
	}
	if p.Page == 0 {
		return starts("KStart", a.KStart, p.Batch, a.K.S, p.SeqKV)
	}
	if a.KStart != nil {
		return errors.New("KStart: given, but the keys are in pages: give their numbers in KLen")
	}
	return nil
}

// starts checks the offsets of the sequences of a ragged batch: there is one more offset than
// sequences, offsets do not decrease, and no sequence exceeds the capacity.
func starts(name string, at []int32, batch, rows, capacity int) error {
	if len(at) != batch+1 {
		return fmt.Errorf("%s: %d offsets for %d sequences, want one more than there are sequences", name, len(at), batch)
	}
	for b, end := range at[1:] {
		switch from := at[b]; {
		case from < 0 || end < from:
			return fmt.Errorf("%s: sequence %d is rows %d to %d, want offsets of 0 or more that do not decrease", name, b, from, end)
		case int(end-from) > capacity:
			return fmt.Errorf("%s: sequence %d has %d rows, the plan's capacity is %d", name, b, end-from, capacity)
		case int(end) > rows:
			return fmt.Errorf("%s: sequence %d ends at row %d, and there are %d rows", name, b, end, rows)
		}
	}
	return nil
}

// farthest is the largest distance of a query from the first key, on either side. Kernels' loops
// hold distances in 32 bits.
const farthest = 1 << 30

func (p *Problem) checkLengths(a *Args) error {
	switch {
	case !p.Lengths && (a.KLen != nil || a.QPos != nil):
		return errors.New("KLen, QPos: given, but the problem has no Lengths")
	case a.KLen != nil && len(a.KLen) != p.Batch:
		return fmt.Errorf("KLen: %d entries for a batch of %d, want one for each entry", len(a.KLen), p.Batch)
	case a.QPos != nil && len(a.QPos) != p.Batch:
		return fmt.Errorf("QPos: %d entries for a batch of %d, want one for each entry", len(a.QPos), p.Batch)
	}
	for b, at := range a.QPos {
		if at < -farthest || at > farthest {
			return fmt.Errorf("QPos[%d]: position %d, want %d to %d", b, at, -farthest, farthest)
		}
	}
	for b, n := range a.KLen {
		if room := a.room(p, b); n < 0 || int(n) > room {
			return fmt.Errorf("KLen[%d]: %d keys in use, want 0 to %d", b, n, room)
		}
	}
	return nil
}

func (p *Problem) checkPages(a *Args) error {
	if p.Page == 0 {
		if a.Pages != nil {
			return errors.New("Pages: given, but the problem has no Page size")
		}
		return nil
	}
	if err := p.checkTable(a); err != nil {
		return err
	}
	each := p.PagesEach()
	for b := range p.Batch {
		used := (a.Keys(p, b) + p.Page - 1) / p.Page
		for i, page := range a.Pages[b*each:][:used] {
			if page < 0 || int(page) >= a.K.B {
				return fmt.Errorf("Pages[%d]: page %d, and the pool has %d pages", b*each+i, page, a.K.B)
			}
		}
	}
	return nil
}

func (p *Problem) checkTable(a *Args) error {
	if each := p.PagesEach(); len(a.Pages) != p.Batch*each {
		return fmt.Errorf("Pages: %d entries, want %d: %d for each of %d batch entries", len(a.Pages), p.Batch*each, each, p.Batch)
	}
	return nil
}

func (p *Problem) checkMask(a *Args) error {
	m := &a.Allowed
	if p.Mask.Bitmap == NoBitmap {
		if m.Bool != nil || m.Words != nil {
			return errors.New("Allowed: given, but the problem's mask has no bitmap")
		}
		return nil
	}
	nq, nk := a.grid(p)
	if side := p.Mask.Block; p.Mask.Bitmap == BlockBitmap {
		nq, nk = (nq+side-1)/side, (nk+side-1)/side
	}
	if err := broadcastable("Allowed", m.B, m.S, m.H, m.D, p.Batch, nq, p.HeadsQ, nk); err != nil {
		return err
	}
	if min(m.SB, m.SS, m.SH) < 0 {
		return fmt.Errorf("Allowed: negative stride (%d, %d, %d)", m.SB, m.SS, m.SH)
	}
	have := len(m.Bool)
	if p.Mask.Bitmap != BoolBitmap {
		have = 64 * len(m.Words)
	}
	if n := span([4]int{m.B, m.S, m.H, m.D}, [4]int{m.SB, m.SS, m.SH, 1}); n < 0 || n > have {
		return fmt.Errorf("Allowed: %d elements, shape %s reaches past them", have, shape(m.B, m.S, m.H, m.D))
	}
	return nil
}

func (p *Problem) checkTerms(a *Args) error {
	t := &a.Terms
	nq, nk := a.grid(p)
	terms := p.Score.Terms
	for _, o := range [...]struct {
		name       string
		set, asked bool
		asks       string
	}{
		{"Bias", !t.Bias.isZero(), terms&TermBias != 0, "TermBias"},
		{"Slopes", t.Slopes != nil, terms&TermALiBi != 0, "TermALiBi"},
		{"Sinks", t.Sinks != nil, terms&TermSinks != 0, "TermSinks"},
		{"Relative", !t.Relative.isZero(), terms&TermRelative != 0, "TermRelative"},
		{"Metric", !t.Metric.isZero(), terms&TermMetric != 0, "TermMetric"},
		{"Cos", !t.Cos.isZero(), p.Score.Rope != NoRope, "Rope"},
		{"Sin", !t.Sin.isZero(), p.Score.Rope != NoRope, "Rope"},
		{"Decay", !t.Decay.isZero(), p.Linear.Gate != NoGate, "Gate"},
		{"Beta", !t.Beta.isZero(), p.Linear.Delta, "Delta"},
	} {
		if o.set && !o.asked {
			return fmt.Errorf("%s: given, but the problem has no %s", o.name, o.asks)
		}
	}
	if terms&TermBias != 0 {
		b := &t.Bias
		if err := broadcastable("Bias", b.B, b.S, b.H, b.D, p.Batch, nq, p.HeadsQ, nk); err != nil {
			return err
		}
		if err := b.numbers("Bias"); err != nil {
			return err
		}
	}
	if terms&TermALiBi != 0 && len(t.Slopes) != p.HeadsQ {
		return fmt.Errorf("Slopes: %d slopes for %d query heads, want one for each", len(t.Slopes), p.HeadsQ)
	}
	if terms&TermSinks != 0 && len(t.Sinks) != p.HeadsQ {
		return fmt.Errorf("Sinks: %d sinks for %d query heads, want one for each", len(t.Sinks), p.HeadsQ)
	}
	if terms&TermRelative != 0 {
		if err := p.checkRelative(a, nq, nk); err != nil {
			return err
		}
	}
	if terms&TermMetric != 0 {
		g := &t.Metric
		if g.B != 1 || g.S != p.QDim() || g.H != 1 && g.H != p.HeadsQ || g.D != p.Dim {
			return fmt.Errorf("Metric: shape %s, want batch 1, seq (rows) %d, head 1 or %d, dim (columns) %d", g.Shape(), p.QDim(), p.HeadsQ, p.Dim)
		}
		if err := g.numbers("Metric"); err != nil {
			return err
		}
	}
	if p.Score.Rope != NoRope {
		return p.checkRope(a)
	}
	return nil
}

// numbers checks that an operand whose extents have been checked is float32 and large enough.
func (t *Tensor) numbers(name string) error { return t.fits(name, F32, t.B, t.S, t.H, t.D) }

func (p *Problem) checkRelative(a *Args, nq, nk int) error {
	t, clip := &a.Terms.Relative, a.Terms.RelativeClip
	rows := max(nq+nk-1, 0)
	if clip > 0 {
		rows = 2*clip + 1
	}
	if clip < 0 || clip > farthest {
		return fmt.Errorf("RelativeClip: %d, want a distance of at most %d, or 0 for a table of all distances", clip, farthest)
	}
	if t.B != 1 || t.S != rows || t.H != 1 && t.H != p.HeadsQ || t.D != p.QDim() {
		return fmt.Errorf("Relative: shape %s, want batch 1, seq %d (a row for each distance), head 1 or %d, dim %d", t.Shape(), rows, p.HeadsQ, p.QDim())
	}
	return t.numbers("Relative")
}

func (p *Problem) checkRope(a *Args) error {
	cos, sin := &a.Terms.Cos, &a.Terms.Sin
	if cos.B != sin.B || cos.S != sin.S || cos.H != sin.H || cos.D != sin.D {
		return fmt.Errorf("Sin: shape %s, want that of Cos, %s", sin.Shape(), cos.Shape())
	}
	if cos.B != 1 && cos.B != p.Batch || cos.H != 1 || 2*cos.D > min(p.QDim(), p.Dim) {
		return fmt.Errorf("Cos, Sin: shape %s, want batch 1 or %d, seq (positions), head 1, and dim (angles) up to half of %d", cos.Shape(), p.Batch, min(p.QDim(), p.Dim))
	}
	if err := cos.numbers("Cos"); err != nil {
		return err
	}
	if err := sin.numbers("Sin"); err != nil {
		return err
	}
	for b := range p.Batch {
		pos, n, nk := a.Pos(p, b), a.Queries(p, b), a.Keys(p, b)
		if n > 0 && (pos < 0 || pos+n > cos.S) || nk > cos.S {
			return fmt.Errorf("Cos, Sin: a table of %d positions, but batch entry %d has queries at %d to %d and keys at 0 to %d", cos.S, b, pos, pos+n-1, nk-1)
		}
	}
	return nil
}

func (p *Problem) checkStats(a *Args) error {
	s := &a.Stats
	_, nk := a.grid(p)
	all := [...]struct {
		name string
		t    *Tensor
		want Want
		d    int
	}{
		{"Stats.LSE", &s.LSE, WantLSE, logSumDim(&s.LSE)},
		{"Stats.Mean", &s.Mean, WantMean, 1},
		{"Stats.Entropy", &s.Entropy, WantEntropy, 1},
		{"Stats.Max", &s.Max, WantMax, 1},
		{"Stats.Weights", &s.Weights, WantWeights, nk},
		{"Stats.Scores", &s.Scores, WantScores, nk},
	}
	for i, o := range all {
		if o.t.isZero() {
			continue
		}
		if asked := p.Want&o.want != 0 || o.want == WantLSE && p.ReadsLSE(); !asked {
			return fmt.Errorf("%s: given, but the problem does not Want it", o.name)
		}
		if err := a.output(o.name, o.t, F32, a.Q.B, a.Q.S, p.HeadsQ, o.d); err != nil {
			return err
		}
		if err := o.t.disjoint(o.name, &a.Out, "Out"); err != nil {
			return err
		}
		for _, other := range all[:i] {
			if err := o.t.disjoint(o.name, other.t, other.name); err != nil {
				return err
			}
		}
	}
	if s.ArgMax == nil {
		return nil
	}
	if p.Want&WantArgMax == 0 {
		return errors.New("Stats.ArgMax: given, but the problem does not Want it")
	}
	if !fits(1<<62, a.Q.B, a.Q.S, p.HeadsQ) || len(s.ArgMax) != a.Q.B*a.Q.S*p.HeadsQ {
		return fmt.Errorf("Stats.ArgMax: %d numbers for %d batch entries of %d rows of %d heads, want one for each row of a head", len(s.ArgMax), a.Q.B, a.Q.S, p.HeadsQ)
	}
	own := regionOf(s.ArgMax)
	if err := a.disjointFromInputs("Stats.ArgMax", own); err != nil {
		return err
	}
	if err := own.disjoint("Stats.ArgMax", a.Out.region(), "Out"); err != nil {
		return err
	}
	for _, o := range all {
		if err := own.disjoint("Stats.ArgMax", o.t.region(), o.name); err != nil {
			return err
		}
	}
	return nil
}

// Must panics when the operands of a call are wrong. Every Forward calls it first.
func (p *Problem) Must(kernel string, a *Args) {
	if err := p.Check(a); err != nil {
		panic(fmt.Errorf("%s: %w", kernel, err))
	}
}
