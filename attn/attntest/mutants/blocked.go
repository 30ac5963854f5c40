package mutants

import (
	"math"
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
		{maxOverHidden, "max_over_hidden", "the maximum is taken before the mask, and a loud hidden key drowns the visible ones"},
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
		{alignByCapacity, "align_by_capacity", "the last query stands on the last key of the plan, not of the call"},
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
	} {
		all = append(all, Mutant{m.name, m.why, blocked{m.name, m.bug, new(atomic.Int64)}, blockedClaims})
	}
	return all
}

const blockedClaims = attn.NeedSoftmax | attn.NeedWindow | attn.NeedBool | attn.NeedTemp | attn.NeedBias | attn.NeedLengths |
	attn.NeedLSE | attn.NeedMean | attn.NeedEntropy

// Blocked returns the healthy softmax kernel, and what it can do.
func Blocked() (attn.Kernel, attn.Needs) { return blocked{"blocked", healthy, nil}, blockedClaims }

// blockKeys is how many keys are scored before the maximum is looked at. Blocks start at multiples of it.
const blockKeys = 16

type blocked struct {
	name  string
	bug   bug
	plans *atomic.Int64 // made so far, for plansDiffer
}

func (k blocked) Name() (algo, is string) { return k.name, isa }

func (k blocked) Check(p attn.Problem, workers int) (int64, error) {
	if err := p.Require(k.name, blockedClaims); err != nil {
		return 0, err
	}
	floats, err := attn.Floats(max(workers, 1), blockKeys+p.DimV)
	if k.bug == understatesScratch {
		floats /= 2
	}
	return floats, err
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
		pl.rows = append(pl.rows, onlineRow{blockedPlan: pl, score: make([]float32, blockKeys), out: make([]float32, p.DimV)})
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
	rows  []onlineRow // one a worker
	waste []float32   // of allocates; a field, so that the allocation is not optimised away
	a     *attn.Args
	task  func(worker, task int)
}

func (pl *blockedPlan) Scratch() int64 { return 4 * int64(len(pl.rows)) * int64(blockKeys+pl.p.DimV) }

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
	for i := range pl.a.Q.S {
		pl.rows[worker].compute(task/pl.p.HeadsQ, task%pl.p.HeadsQ, i)
	}
}

// An onlineRow is the softmax of one query while its keys pass by.
type onlineRow struct {
	*blockedPlan
	b, h, kv, i int
	score       []float32 // of the block at hand; -Inf counts for nothing
	out         []float32 // Σ e v
	top         float32   // the largest score so far
	sum         float32   // Σ e, e = exp((s-top)/T)
	scores      float32   // Σ e s
	infs        int       // scores that are +Inf
	infKey      int       // where one of them is
	invalid     bool      // a score is NaN
}

var inf = float32(math.Inf(1))

func (r *onlineRow) compute(b, h, i int) {
	r.b, r.h, r.kv, r.i = b, h, h/r.p.Group(), i
	if r.bug == headModulo {
		r.kv = h % r.p.HeadsKV
	}
	if r.bug != maxFromLastRow || !(r.top*r.top < 25) {
		r.top = -inf
	}
	r.sum, r.scores, r.infs, r.invalid = 0, 0, 0, false
	clear(r.out)
	if r.bug == changesInput {
		q := r.a.Q.Row(b, i, h)
		for x := range q {
			q[x] *= float32(r.p.Scale())
		}
	}
	lo, hi := r.a.Visible(&r.p, b, i)
	if r.bug == alignByCapacity && !r.p.Lengths && r.p.Mask.Align == attn.BottomRight {
		lo, hi = r.p.Mask.Keys(r.p.SeqKV-r.p.SeqQ+i, r.a.K.S)
	}
	if r.bug == dropTail && hi%r.block != 0 && hi > r.block {
		hi -= hi % r.block
	}
	for at := lo - lo%r.block; at < hi; at += r.block {
		r.absorb(max(at, lo), min(at+r.block, hi))
	}
	r.store()
}

// absorb takes in the keys lo to hi of one block.
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
			r.infs, r.infKey, s = r.infs+1, j, -inf
		}
		r.score[j-lo] = s
		top = max(top, s)
	}
	if top > r.top {
		r.rescale(top)
	}
	for x := range hi - lo {
		j := lo + x
		if r.bug == orderByBatch && r.b%2 == 1 {
			j = hi - 1 - x
		}
		e, s := float32(0), r.score[j-lo]
		switch {
		case s != -inf:
			e = r.weight(s - r.top)
			r.sum += e
			r.scores += float32(e * s)
		case r.bug != hiddenValueEnters:
			continue
		}
		for c, v := range r.a.V.Row(r.b, j, r.kv) {
			r.out[c] += float32(e * v)
		}
	}
	if r.bug == sumInHalf {
		r.sum = math.Float32frombits(math.Float32bits(r.sum) &^ (1<<13 - 1))
	}
}

// rescale moves everything accumulated to a new maximum.
func (r *onlineRow) rescale(top float32) {
	if r.top != -inf {
		f := r.weight(r.top - top)
		if r.bug != rescaleMean {
			r.scores *= f
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

// weight is exp(d/T) for d = s - top, and its limits.
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
	q, k := r.a.Q.Row(r.b, r.i, r.h), r.a.K.Row(r.b, j, r.kv)
	if r.bug == contiguousRows {
		k = r.a.K.Data[r.b*r.a.K.SB+r.kv*r.a.K.SH+j*r.p.Dim:][:r.p.Dim]
	}
	dot := float32(0)
	for x := range q {
		if r.bug == orderByLayout && r.a.K.SS == r.p.Dim {
			x = len(q) - 1 - x
		}
		dot += float32(q[x] * k[x])
	}
	s, scale := dot, float32(r.p.Scale())
	if r.bug != changesInput && r.bug != biasAfterScale {
		s *= scale
	}
	if r.p.Score.Terms&attn.TermBias != 0 {
		i := r.i
		if r.bug == biasForgetsQuery {
			i = 0
		}
		bias := &r.a.Terms.Bias
		off, step := bias.Offset(r.b, i, r.h)
		s += bias.Data[off+j*step]
	}
	if r.bug == biasAfterScale {
		s *= scale
	}
	return s
}

func (r *onlineRow) visible(j int) bool {
	if r.p.Mask.Bitmap == attn.NoBitmap {
		return true
	}
	b, h := r.b, r.h
	switch r.bug {
	case maskForgetsBatch:
		b = 0
	case maskForgetsHead:
		h = 0
	}
	off, step := r.a.Allowed.Offset(b, r.i, h)
	return r.a.Allowed.Bool[off+j*step]
}

// store writes the row and its by-products.
func (r *onlineRow) store() {
	dst, st := r.a.Out.Row(r.b, r.i, r.h), &r.a.Stats
	lse, mean, entropy := -inf, float32(0), float32(0)
	switch {
	case r.invalid || r.infs > 1:
		nan := float32(math.NaN())
		lse, mean, entropy = nan, nan, nan
		for c := range dst {
			dst[c] = nan
		}
	case r.infs == 1:
		lse, mean = inf, inf
		copy(dst, r.a.V.Row(r.b, r.infKey, r.kv))
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
		beta := r.beta
		if r.p.Score.Temp == attn.Frozen {
			beta = 0 // weights that are 1 or 0 leave nothing but their number
		}
		logSum := float32(math.Log(float64(r.sum)))
		lse, mean = logSum+float32(r.top*beta), r.scores/r.sum
		entropy = lse - float32(mean*beta)
		switch r.bug {
		case entropySign:
			entropy = lse + float32(mean*beta)
		case meanOfZ:
			mean *= beta
		case lseBase2:
			lse *= math.Log2E
		case lseWithoutMax:
			lse = logSum
		}
	}
	if end := r.b*r.a.Out.SB + r.i*r.a.Out.SS + r.h*r.a.Out.SH + r.p.DimV; r.bug == writesPastRow && end < len(r.a.Out.Data) {
		r.a.Out.Data[end] = 0
	}
	r.put(&st.LSE, lse)
	r.put(&st.Mean, mean)
	r.put(&st.Entropy, entropy)
}

func (r *onlineRow) put(t *attn.Tensor, x float32) {
	if t.Data != nil {
		t.Row(r.b, r.i, r.h)[0] = x
	}
}
