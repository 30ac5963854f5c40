package mutants

import (
	"math"
	"slices"
	"sync/atomic"

	"attnlab/attn"
)

// A bug is a switch of Blocked.
type bug uint8

const (
	healthy bug = iota
	rescaleOut
	rescaleSum
	rescaleMean
	dropTail
	maskMultiplies
	maskForgetsHead
	maskForgetsBatch
	maxOverHidden
	hiddenValueEnters
	hiddenRowDivided
	hiddenRowSkipped
	fillMillions
	biasForgetsQuery
	biasAfterScale
	entropySign
	meanOfZ
	lseBase2
	lseWithoutMax
	infMinusInf
	firstTieWins
	nanSkipped
	headModulo
	alignByCapacity
	contiguousRows
	sumInHalf
	staleOutput
	writesPastRow
	changesInput
	maxFromLastRow
	blocksByWorkers
	orderByBatch
	orderByLayout
	plansDiffer
	allocates
	understatesScratch
	unchecked
	softcapAfterBias
	alibiByIndex
	ropeByIndex
	ropeForgetsKeys
	metricTransposed
	metricBesides
	relativeOffByOne
	clipOffByOne
	sinkForgetsLSE
	sinkWithoutScore
	sinkHasValue
	sinkInfinityIsZero
	entropyWithoutSink
	mergeUnscaled
	bitsReversed
	blockSideOffByOne
	orderByMask
	raggedNeighbour
	pageOffByOne
	pageRowsReversed
	scaleOfNeighbour
	halfFlushed
	outputTruncated
	argMaxInBlock
	maxOfSink
	sinkByTemperature
	metricBeforeRope
	relativeTurned
	bitmapByRow
	capacityInTable
	lowestHides
	lseRounded
	mergeByLSE
	weightsForgetSink
)

func blockedMutants() []Mutant {
	var all []Mutant
	for _, m := range []struct {
		bug       bug
		name, why string
	}{
		{rescaleOut, "rescale_out", "a new maximum does not rescale the output accumulated so far"},
		{rescaleSum, "rescale_sum", "a new maximum does not rescale the sum of weights"},
		{rescaleMean, "rescale_mean", "a new maximum does not rescale the sum of weighted scores"},
		{dropTail, "drop_tail", "keys after the last full block are left out"},
		{maskMultiplies, "mask_multiplies", "a hidden score is multiplied by 0, which is a score like any other"},
		{maskForgetsHead, "mask_forgets_head", "every head uses the element mask of head 0"},
		{maskForgetsBatch, "mask_forgets_batch", "every batch entry uses the element mask of entry 0"},
		{maxOverHidden, "max_over_hidden", "the maximum is taken before the mask, and a hidden key with a large score makes visible weights 0"},
		{hiddenValueEnters, "hidden_value_enters", "hidden values enter with weight 0, and 0 times NaN is NaN"},
		{hiddenRowDivided, "hidden_row_divided", "a row without visible keys is divided by its sum, 0"},
		{hiddenRowSkipped, "hidden_row_skipped", "a row without visible keys is left as it was"},
		{fillMillions, "fill_millions", "hidden scores are -1e9, not -Inf: a row that sees nothing sees everything"},
		{biasForgetsQuery, "bias_forgets_query", "every query uses the bias of query 0"},
		{biasAfterScale, "bias_scaled", "the bias is added before the scale"},
		{entropySign, "entropy_sign", "the entropy adds the mean of z where it must subtract it"},
		{meanOfZ, "mean_of_z", "the mean score is divided by the temperature"},
		{lseBase2, "lse_base2", "LSE is in base 2"},
		{lseWithoutMax, "lse_without_max", "LSE leaves out the maximum"},
		{infMinusInf, "inf_minus_inf", "a single infinite score is subtracted from itself"},
		{firstTieWins, "first_tie_wins", "at temperature 0 the first of equal scores takes all the weight"},
		{nanSkipped, "nan_skipped", "a NaN score is dropped, so that a broken input looks like an answer"},
		{headModulo, "head_modulo", "query head h shares key head h mod n, not h div group"},
		{alignByCapacity, "align_by_capacity", "the last query is positioned at the last key of the plan, not of the call"},
		{contiguousRows, "contiguous_rows", "rows of K are taken to be contiguous"},
		{sumInHalf, "sum_in_half", "the sum of weights keeps 11 bits"},
		{staleOutput, "stale_output", "the output is added to what was there"},
		{writesPastRow, "writes_past_row", "the store is a whole vector, and spills past the end of the row"},
		{changesInput, "changes_input", "the query is scaled in place"},
		{maxFromLastRow, "max_from_last_row", "the maximum starts from the row computed before"},
		{blocksByWorkers, "blocks_by_workers", "the block size follows the number of workers: right, but its bits depend on threads"},
		{orderByBatch, "order_by_batch", "odd batch entries sum from the other end: right, but its bits depend on the place in the batch"},
		{orderByLayout, "order_by_layout", "contiguous rows are summed from the other end: right, but its bits depend on the layout"},
		{plansDiffer, "plans_differ", "each plan has another block size than the dozen before it: the kernel is not stateless"},
		{allocates, "allocates", "every call allocates"},
		{understatesScratch, "understates_scratch", "Check says less memory than the plan takes"},
		{unchecked, "unchecked", "wrong operands are not refused"},
		{softcapAfterBias, "softcap_after_bias", "the softcap is applied to the score with its bias"},
		{alibiByIndex, "alibi_by_index", "ALiBi counts from the row of a query, not from its position"},
		{ropeByIndex, "rope_by_index", "a query is rotated by its row, not by its position"},
		{ropeForgetsKeys, "rope_forgets_keys", "keys are not rotated"},
		{metricTransposed, "metric_transposed", "k . g . q in place of q . g . k"},
		{metricBesides, "metric_besides", "the product through the metric is added to the plain one"},
		{relativeOffByOne, "relative_off_by_one", "relative positions are taken from the row after theirs"},
		{clipOffByOne, "clip_off_by_one", "relative positions are clipped to one less than the distance"},
		{sinkForgetsLSE, "sink_forgets_lse", "the sink takes weight, but does not count in LSE"},
		{sinkWithoutScore, "sink_without_score", "the sink takes weight, but does not count in Mean"},
		{sinkHasValue, "sink_has_value", "the weight of the sink goes to the first value"},
		{sinkInfinityIsZero, "sink_infinity_is_zero", "a sink of -Inf is taken for a sink of 0"},
		{entropyWithoutSink, "entropy_without_sink", "the entropy uses the LSE of the keys alone"},
		{mergeUnscaled, "merge_unscaled", "two halves of the keys are added up, each relative to its own maximum"},
		{bitsReversed, "bits_reversed", "the first key is the highest bit of a word"},
		{blockSideOffByOne, "block_side_off_by_one", "blocks of a bitmap are one key too long"},
		{orderByMask, "order_by_mask", "a block under a bitmap sums from the other end: right, but its bits depend on the mask's form"},
		{raggedNeighbour, "ragged_neighbour", "a sequence reads keys from where the one before it starts"},
		{pageOffByOne, "page_off_by_one", "a key is read from the page after its own"},
		{pageRowsReversed, "page_rows_reversed", "the rows of a page are read from its end"},
		{scaleOfNeighbour, "scale_of_neighbour", "an int8 row is multiplied by the scale of the one after it"},
		{halfFlushed, "half_flushed", "subnormal f16 numbers are read as 0"},
		{outputTruncated, "output_truncated", "a bf16 output is cut off, not rounded"},
		{argMaxInBlock, "argmax_in_block", "ArgMax is an index in the block, not in the row"},
		{maxOfSink, "max_of_sink", "the largest score may be that of the sink"},
		{sinkByTemperature, "sink_by_temperature", "the sink is divided by the temperature, like a score"},
		{metricBeforeRope, "metric_before_rope", "the query is rotated after the metric, not before it"},
		{relativeTurned, "relative_turned", "relative positions multiply the rotated query"},
		{bitmapByRow, "bitmap_by_row", "a sequence of a ragged batch uses the bitmap of its row in the tensor"},
		{capacityInTable, "capacity_in_table", "full relative positions count from the plan's queries, not the call's"},
		{lowestHides, "lowest_hides", "a bias of the lowest float32 overflows as a base-2 logarithm, and hides its key"},
		{lseRounded, "lse_rounded", "an LSE of two numbers is rounded to the first, and the second is 0"},
		{mergeByLSE, "merge_by_lse", "two halves of the keys are merged by an LSE in one float32, which far from 0 has lost the logarithm of the sum"},
		{weightsForgetSink, "weights_forget_sink", "the weights that are written leave no share to the sink"},
	} {
		all = append(all, Mutant{Name: m.name, Why: m.why, Kernel: blocked{m.name, m.bug, new(atomic.Int64)}, Claims: blockedClaims})
	}
	return all
}

const blockedClaims = attn.AllSoftmax &^ (attn.NeedScores | attn.NeedGrad)

// Blocked returns the healthy softmax kernel and its claims.
func Blocked() (attn.Kernel, attn.Needs) { return blocked{"blocked", healthy, nil}, blockedClaims }

// blockKeys is the number of keys that are scored before the maximum is updated. Blocks start at
// multiples of it.
const blockKeys = 16

type blocked struct {
	name  string
	bug   bug
	plans *atomic.Int64 // number of plans made, for plansDiffer
}

func (k blocked) Name() (algo, is string) { return k.name, isa }

func (k blocked) Check(p attn.Problem, workers int) (int64, error) {
	if err := p.Require(k.name, blockedClaims); err != nil {
		return 0, err
	}
	floats, err := attn.Floats(max(workers, 1), rowFloats(&p))
	if k.bug == understatesScratch {
		floats /= 2
	}
	return floats, err
}

// rowFloats returns the floats that a worker needs: the scores of a block; a row of Q as stored and
// rotated; a row of Q multiplied by the metric, of K, V and Out; and Σ e v.
func rowFloats(p *attn.Problem) int {
	return blockKeys + p.QDim() + max(p.QDim(), p.Dim) + 2*p.Dim + 3*p.DimV
}

func (k blocked) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	if _, err := k.Check(p, team.Workers()); err != nil {
		return nil, err
	}
	pl := &blockedPlan{blocked: k, p: p, team: team, block: blockKeys, beta: float32(1 / p.Temperature())}
	switch {
	case k.bug == blocksByWorkers:
		pl.block = max(1, blockKeys/team.Workers())
	case k.bug == plansDiffer:
		pl.block = blockKeys - int(k.plans.Add(1)%13)
	}
	for range team.Workers() {
		f := func(n int) []float32 { return make([]float32, n) }
		pl.rows = append(pl.rows, onlineRow{
			blockedPlan: pl, score: f(blockKeys), out: f(p.DimV), raw: f(p.QDim()), turned: f(max(p.QDim(), p.Dim)), bent: f(p.Dim), k: f(p.Dim), v: f(p.DimV), row: f(p.DimV),
		})
	}
	pl.task = pl.head
	return pl, nil
}

type blockedPlan struct {
	blocked
	p     attn.Problem
	team  *attn.Team
	block int
	beta  float32     // 1/T
	rows  []onlineRow // one for each worker
	waste []float32   // for allocates; a field, so that the allocation is not optimised away
	a     *attn.Args
	task  func(worker, task int)
}

func (pl *blockedPlan) Scratch() int64 { return 4 * int64(len(pl.rows)) * int64(rowFloats(&pl.p)) }

func (pl *blockedPlan) Forward(a *attn.Args) {
	if pl.bug != unchecked {
		pl.p.Must(pl.name, a)
	}
	if pl.bug == allocates {
		pl.waste = make([]float32, 8)
	}
	pl.a = a
	pl.team.Run(pl.p.Batch*pl.p.HeadsQ, pl.task)
	pl.a = nil
}

func (pl *blockedPlan) head(worker, task int) {
	b := task / pl.p.HeadsQ
	for i := range pl.a.Queries(&pl.p, b) {
		pl.rows[worker].compute(b, task%pl.p.HeadsQ, i)
	}
}

// An onlineRow is the online softmax of one query.
type onlineRow struct {
	*blockedPlan
	b, h, kv, i int
	pos         int
	q           []float32 // the query, rotated and multiplied by the metric
	score       []float32 // scores of the current block; -Inf has no weight
	out         []float32 // Σ e v
	top         float32   // the largest score so far, including the sink's
	sum         float32   // Σ e, e = exp((s-top)/T)
	scores      float64   // Σ e s
	below       float64   // Σ e (s-top), precise where scores are far from 0
	largest     float32   // the largest score of a key
	first       int32     // the first key with that score
	infs        int       // number of scores that are +Inf
	infKey      int       // a key with such a score, or -1
	invalid     bool      // a score is NaN

	raw, turned, bent, k, v, row []float32 // scratch rows
}

var inf = float32(math.Inf(1))

func (r *onlineRow) compute(b, h, i int) {
	r.b, r.h, r.kv, r.i, r.pos = b, h, h/r.p.Group(), i, r.a.Pos(&r.p, b)+i
	if r.bug == headModulo {
		r.kv = h % r.p.HeadsKV
	}
	r.begin()
	r.query()
	lo, hi := r.a.Visible(&r.p, b, i)
	if r.bug == alignByCapacity && !r.p.Lengths && r.p.Mask.Align == attn.BottomRight {
		lo, hi = r.p.Mask.Keys(r.p.SeqKV-r.p.SeqQ+i, r.a.Keys(&r.p, b))
	}
	if r.bug == dropTail && hi%r.block != 0 && hi > r.block {
		hi -= hi % r.block
	}
	for at := lo - lo%r.block; at < hi; at += r.block {
		if r.bug == mergeUnscaled && at == 4*blockKeys {
			r.top = -inf
		}
		r.absorb(max(at, lo), min(at+r.block, hi))
	}
	r.store()
}

// begin resets the row to no keys. A sink counts as a key of score T*sink without a value.
func (r *onlineRow) begin() {
	if r.bug != maxFromLastRow || !(r.top*r.top < 25) {
		r.top = -inf
	}
	r.sum, r.scores, r.below, r.infs, r.invalid, r.largest, r.first = 0, 0, 0, 0, false, -inf, -1
	clear(r.out)
	sink := r.sink()
	switch {
	case sink != sink:
		r.invalid = true
	case sink == inf:
		r.infs, r.infKey = 1, -1
	case sink != -inf:
		r.top, r.sum = sink, 1
		if r.bug != sinkWithoutScore {
			r.scores = float64(sink)
		}
		if r.bug == sinkHasValue && r.a.Keys(&r.p, r.b) > 0 {
			copy(r.out, r.value(0))
		}
		if r.bug == maxOfSink {
			r.largest = sink
		}
	}
}

// sink returns T times the sink of the head, or -Inf if it has none.
func (r *onlineRow) sink() float32 {
	if r.p.Score.Terms&attn.TermSinks == 0 {
		return -inf
	}
	sink := r.a.Terms.Sinks[r.h]
	if r.bug == sinkInfinityIsZero && sink == -inf {
		sink = 0
	}
	if r.bug == sinkByTemperature {
		return sink
	}
	return sink * float32(r.p.Temperature())
}

// query reads a row of Q, rotates it and multiplies it by the metric.
func (r *onlineRow) query() {
	p := &r.p
	at, row := r.a.QRow(p, r.b, r.i)
	r.raw = r.read(r.raw, &r.a.Q, at, row, r.h)
	if r.bug == changesInput {
		for x := range r.raw {
			r.raw[x] *= float32(p.Scale())
		}
	}
	r.q = r.raw
	if r.bug == metricBeforeRope {
		r.bend()
		r.place()
		return
	}
	r.place()
	r.bend()
}

// place rotates the query to its position.
func (r *onlineRow) place() {
	if r.p.Score.Rope == attn.NoRope {
		return
	}
	pos := r.pos
	if r.bug == ropeByIndex {
		pos = r.i
	}
	copy(r.turned, r.q)
	r.q = r.turn(r.turned[:len(r.q)], pos)
}

// bend multiplies the query by the metric.
func (r *onlineRow) bend() {
	if r.p.Score.Terms&attn.TermMetric == 0 {
		return
	}
	clear(r.bent)
	if r.bug == metricBesides {
		copy(r.bent, r.q)
	}
	g := &r.a.Terms.Metric
	h := r.h % g.H
	for x, q := range r.q {
		for y := range r.bent {
			m := g.Row(0, x, h)[y]
			if r.bug == metricTransposed && g.S == g.D {
				m = g.Row(0, y, h)[x]
			}
			r.bent[y] += float32(q * m)
		}
	}
	r.q = r.bent
}

func (r *onlineRow) turn(x []float32, pos int) []float32 {
	cos, sin := &r.a.Terms.Cos, &r.a.Terms.Sin
	r.p.Score.Rope.Turn(x, cos.Row(r.b%cos.B, pos, 0), sin.Row(r.b%sin.B, pos, 0))
	return x
}

// read is Tensor.Read with bugs.
func (r *onlineRow) read(to []float32, t *attn.Tensor, b, s, h int) []float32 {
	x := t.Read(to, b, s, h)
	switch {
	case r.bug == halfFlushed && t.Type == attn.F16:
		for c := range x {
			if x[c]*x[c] < 0x1p-28 {
				x[c] = 0
			}
		}
	case r.bug == scaleOfNeighbour && t.Type == attn.I8 && t.D > 0:
		o := b*t.SB + s*t.SS + h*t.SH
		for c := range x {
			x[c] = float32(t.Int8[o+c]) * t.Scale[(o/t.D+1)%len(t.Scale)]
		}
	}
	return x
}

// keyRow is Args.KRow with bugs.
func (r *onlineRow) keyRow(j int) (at, row int) {
	at, row = r.a.KRow(&r.p, r.b, j)
	switch {
	case r.bug == raggedNeighbour && r.p.Ragged && r.p.Page == 0:
		row = int(r.a.KStart[max(r.b-1, 0)]) + j
	case r.bug == pageOffByOne && r.p.Page != 0:
		next := r.b*r.p.PagesEach() + j/r.p.Page + 1
		at = max(0, int(r.a.Pages[next%len(r.a.Pages)]))
	case r.bug == pageRowsReversed && r.p.Page != 0:
		row = r.p.Page - 1 - row
	}
	return at, row
}

func (r *onlineRow) key(j int) []float32 {
	at, row := r.keyRow(j)
	k := &r.a.K
	if r.bug == contiguousRows && k.Type == attn.F32 {
		return k.Data[at*k.SB+r.kv*k.SH+row*k.D:][:k.D]
	}
	x := r.read(r.k, k, at, row, r.kv)
	if r.p.Score.Rope == attn.NoRope || r.bug == ropeForgetsKeys {
		return x
	}
	copy(r.k, x)
	return r.turn(r.k, j)
}

func (r *onlineRow) value(j int) []float32 {
	at, row := r.keyRow(j)
	return r.read(r.v, &r.a.V, at, row, r.kv)
}

// absorb adds keys lo to hi of one block.
func (r *onlineRow) absorb(lo, hi int) {
	top := r.top
	for j := lo; j < hi; j++ {
		s := r.scoreOf(j)
		seen := r.visible(j)
		if r.bug == maxOverHidden && s < inf {
			top = max(top, s)
		}
		switch {
		case seen:
		case r.bug == maskMultiplies:
			s *= 0
		case r.bug == fillMillions:
			s = -1e9
		default:
			s = -inf
		}
		switch {
		case s != s && r.bug == nanSkipped:
			s = -inf
		case s != s:
			r.invalid, s = true, -inf
		case s == inf && r.bug != infMinusInf:
			r.infs, r.infKey, r.largest, r.first, s = r.infs+1, j, inf, int32(j), -inf
		}
		if s > r.largest {
			r.largest, r.first = s, int32(j)
			if r.bug == argMaxInBlock {
				r.first = int32(j - lo)
			}
		}
		r.score[j-lo] = s
		top = max(top, s)
	}
	if top > r.top {
		r.rescale(top)
	}
	for x := range hi - lo {
		j := lo + x
		if r.bug == orderByBatch && r.b%2 == 1 || r.bug == orderByMask && r.p.Mask.Bitmap != attn.NoBitmap {
			j = hi - 1 - x
		}
		e, s := float32(0), r.score[j-lo]
		switch {
		case s != -inf:
			e = r.weight(s - r.top)
			r.sum += e
			r.scores += float64(e) * float64(s)
			if e != 0 { // s - top may overflow to -Inf
				r.below += float64(e) * float64(s-r.top)
			}
		case r.bug != hiddenValueEnters:
			continue
		}
		for c, v := range r.value(j) {
			r.out[c] += float32(e * v)
		}
	}
	if r.bug == sumInHalf {
		r.sum = math.Float32frombits(math.Float32bits(r.sum) &^ (1<<13 - 1))
	}
}

// rescale scales all sums to a new maximum.
func (r *onlineRow) rescale(top float32) {
	if r.top != -inf {
		f := r.weight(r.top - top)
		if r.bug == mergeByLSE && f != 0 {
			lse := r.top + float32(float32(math.Log(float64(r.sum)))/r.beta)
			f = float32(math.Exp(float64((lse-top)*r.beta))) / r.sum
		}
		if r.bug != rescaleMean {
			r.scores *= float64(f)
		}
		if r.below *= float64(f); f != 0 {
			r.below += float64(f) * float64(r.sum) * float64(r.top-top)
		}
		if r.bug != rescaleSum {
			r.sum *= f
		}
		if r.bug != rescaleOut {
			for c := range r.out {
				r.out[c] *= f
			}
		}
	}
	r.top = top
}

// weight returns exp(d/T) for d = s - top, and its limits.
func (r *onlineRow) weight(d float32) float32 {
	switch {
	case r.p.Score.Temp != attn.Frozen:
		return float32(math.Exp(float64(d * r.beta)))
	case d < 0 || r.bug == firstTieWins && r.sum > 0:
		return 0
	}
	return 1
}

func (r *onlineRow) scoreOf(j int) float32 {
	p, t := &r.p, &r.a.Terms
	k, dot := r.key(j), float32(0)
	if r.bug == orderByLayout && r.a.K.SS == p.Dim {
		for x := range slices.Backward(r.q) {
			dot += float32(r.q[x] * k[x])
		}
	} else {
		for x, q := range r.q {
			dot += float32(q * k[x])
		}
	}
	s, scale := dot, float32(p.Scale())
	if r.bug != changesInput && r.bug != biasAfterScale {
		s *= scale
	}
	if p.Score.Terms&attn.TermRelative != 0 {
		dot := float32(0)
		q := r.raw
		if r.bug == relativeTurned && p.Score.Rope != attn.NoRope {
			q = r.turned[:len(r.raw)]
		}
		for x, y := range t.Relative.Row(0, r.relative(j), r.h%t.Relative.H) {
			dot += float32(q[x] * y)
		}
		s += scale * dot
	}
	if r.bug != softcapAfterBias {
		s = r.cap(s)
	}
	if p.Score.Terms&attn.TermALiBi != 0 {
		at := r.pos
		if r.bug == alibiByIndex {
			at = r.i
		}
		s -= float32(t.Slopes[r.h] * float32(max(at-j, j-at)))
	}
	if p.Score.Terms&attn.TermBias != 0 {
		i := r.i
		if r.bug == biasForgetsQuery {
			i = 0
		}
		off, step := t.Bias.Offset(r.b, i, r.h)
		s = r.biased(s, t.Bias.Data[off+j*step])
	}
	if r.bug == biasAfterScale {
		s *= scale
	}
	if r.bug == softcapAfterBias {
		s = r.cap(s)
	}
	return s
}

// biased returns a score with a bias added.
func (r *onlineRow) biased(s, bias float32) float32 {
	sum := s + bias
	switch lowest := r.p.Lowest(); {
	case s == -inf || bias == -inf || !(sum < lowest):
	case r.bug == lowestHides:
		return -inf
	default:
		return lowest
	}
	return sum
}

func (r *onlineRow) cap(s float32) float32 {
	limit := r.p.Score.Softcap
	if limit == 0 {
		return s
	}
	return float32(limit * math.Tanh(float64(s)/limit))
}

// relative is Args.Relative with bugs.
func (r *onlineRow) relative(j int) int {
	row, clip := r.a.Relative(&r.p, r.b, r.i, j), r.a.Terms.RelativeClip
	switch {
	case r.bug == relativeOffByOne:
		row = min(row+1, r.a.Terms.Relative.S-1)
	case r.bug == clipOffByOne && clip > 0:
		row = min(max(row, 1), 2*clip-1)
	case r.bug == capacityInTable && clip == 0:
		row = min(row+r.p.SeqQ-r.a.Queries(&r.p, r.b), r.a.Terms.Relative.S-1)
	}
	return row
}

func (r *onlineRow) visible(j int) bool {
	b, i, h, m := r.b, r.i, r.h, &r.a.Allowed
	switch r.bug {
	case bitmapByRow:
		if _, row := r.a.QRow(&r.p, b, i); r.p.Mask.Bitmap != attn.NoBitmap && m.S > 1 {
			i = row % r.p.SeqQ
		}
	case maskForgetsBatch:
		b = 0
	case maskForgetsHead:
		h = 0
	case bitsReversed:
		if r.p.Mask.Bitmap == attn.PackedBitmap {
			off, step := m.Offset(b, i, h)
			off += j * step
			return m.Words[off/64]>>(63-off%64)&1 != 0
		}
	case blockSideOffByOne:
		if side := r.p.Mask.Block; side > 0 {
			j = j / (side + 1) * side
		}
	}
	return r.a.Shows(&r.p, b, i, h, j)
}

// store writes the row and its by-products.
func (r *onlineRow) store() {
	at, row := r.a.QRow(&r.p, r.b, r.i)
	out, st := &r.a.Out, &r.a.Stats
	dst := out.Read(r.row, at, row, r.h)
	lse, mean, entropy := attn.LogSum{Ref: math.Inf(-1)}, float32(0), float32(0)
	switch {
	case r.invalid || r.infs > 1:
		nan := float32(math.NaN())
		lse, mean, entropy, r.largest, r.first = attn.LogSum{Ref: math.NaN()}, nan, nan, nan, -1
		for c := range dst {
			dst[c] = nan
		}
	case r.infs == 1:
		lse, mean = attn.LogSum{Ref: math.Inf(1)}, inf
		if clear(dst); r.infKey >= 0 {
			copy(dst, r.value(r.infKey))
		}
	case r.sum == 0 && r.bug == hiddenRowSkipped:
	case r.sum == 0 && r.bug != hiddenRowDivided:
		clear(dst)
	default:
		for c, o := range r.out {
			if r.bug == staleOutput {
				o += dst[c]
			}
			dst[c] = o / r.sum
		}
		lse, mean, entropy = r.finish()
	}
	if end := at*out.SB + row*out.SS + r.h*out.SH + out.D; r.bug == writesPastRow && end < len(out.Data) {
		out.Data[end] = 0
	}
	if r.bug == outputTruncated && out.Type == attn.BF16 {
		for c, x := range dst {
			dst[c] = math.Float32frombits(math.Float32bits(x) &^ 0xffff)
		}
	}
	out.Write(dst, at, row, r.h)
	put := func(t *attn.Tensor, x float32) {
		if t.Data != nil {
			t.Row(at, row, r.h)[0] = x
		}
	}
	if st.LSE.Data != nil {
		if r.bug == lseRounded {
			lse = attn.LogSum{Ref: float64(float32(lse.Value()))}
		}
		lse.Write(st.LSE.Row(at, row, r.h))
	}
	if st.Weights.Data != nil {
		r.weights(st.Weights.Row(at, row, r.h))
	}
	put(&st.Mean, mean)
	put(&st.Entropy, entropy)
	put(&st.Max, r.largest)
	if st.ArgMax != nil {
		st.ArgMax[(at*out.S+row)*r.p.HeadsQ+r.h] = r.first
	}
}

// weights writes the weights of all keys.
func (r *onlineRow) weights(row []float32) {
	clear(row)
	sum := r.sum
	if sink := r.sink(); r.bug == weightsForgetSink && sink != -inf {
		sum -= r.weight(sink - r.top)
	}
	lo, hi := r.a.Visible(&r.p, r.b, r.i)
	for j := lo; j < hi; j++ {
		s := r.scoreOf(j)
		switch {
		case !r.visible(j) || s == -inf:
		case r.invalid || r.infs > 1:
			row[j] = float32(math.NaN())
		case r.infs == 0:
			row[j] = r.weight(s-r.top) / sum
		case s == inf:
			row[j] = 1
		}
	}
}

// finish computes by-products from the sums.
func (r *onlineRow) finish() (lse attn.LogSum, mean, entropy float32) {
	beta := r.beta
	if r.p.Score.Temp == attn.Frozen {
		beta = 0 // the entropy is the log of the number of ties
	}
	rest := r.sum // the sum without the sink
	if sink := r.sink(); sink != -inf {
		rest -= r.weight(sink - r.top)
	}
	log := func(sum float32) float32 { return float32(math.Log(float64(sum))) }
	below := float32(r.below / float64(r.sum))
	lse, mean = attn.LogSum{Ref: float64(float32(r.top * beta)), Log: float64(log(r.sum))}, float32(r.scores/float64(r.sum))
	entropy = log(r.sum) - float32(below*beta)
	switch r.bug {
	case entropySign:
		entropy = log(r.sum) + 2*float32(r.top*beta) + float32(below*beta)
	case entropyWithoutSink:
		entropy = log(rest) - float32(below*beta)
	case sinkForgetsLSE:
		lse.Log = float64(log(rest))
	case meanOfZ:
		mean *= beta
	case lseBase2:
		lse = attn.LogSum{Ref: lse.Value() * math.Log2E}
	case lseWithoutMax:
		lse.Ref = 0
	}
	return lse, mean, entropy
}
