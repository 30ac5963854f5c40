package mutants

import (
	"math"
	"slices"

	"attnlab/attn"
	"attnlab/kernels/scalar"
)

// A fault is a switch of Gradient.
type fault uint8

const (
	sound fault = iota
	sumOfProducts
	noSum
	scaleMissing
	temperatureMissing
	untransposed
	lastOfGroup
	lastOfBatch
	leaksHidden
	seesNext
	capForgotten
	turnForgotten
	metricForgotten
	relativeForgotten
	sinkKeepsSum
	lseIgnored
	entropyFlipped
	entropyWithoutH
	slopesSigned
	adds
	neighboursSum
	rowsByWorkers
	rowsByLayout
	rowsByBatch
	allocatesBackward
	writesOut
	asksForAll
	uncheckedGrads
	weightsByLSE
	weightsByLSEOfSlopes
)

func gradientMutants() []Mutant {
	var all []Mutant
	for _, m := range []struct {
		fault     fault
		name, why string
	}{
		{sumOfProducts, "grad_sum_of_products", "the softmax subtracts the sum of dA, not of A dA"},
		{noSum, "grad_no_sum", "the softmax subtracts nothing"},
		{scaleMissing, "grad_scale_missing", "the gradient of a score is not multiplied by the scale on its way to Q and K"},
		{temperatureMissing, "grad_temperature_missing", "the gradient of z is not divided by the temperature"},
		{untransposed, "grad_untransposed", "dK is dS Q, not its transpose with Q"},
		{lastOfGroup, "grad_last_of_group", "dK and dV have the last head of the group, not the sum over it"},
		{lastOfBatch, "grad_last_of_batch", "the gradient of a bias has the last batch entry, not the sum over them"},
		{leaksHidden, "grad_leaks_hidden", "hidden keys have weight 0, which multiplies whatever they hold"},
		{seesNext, "grad_sees_next", "the mask of the backward pass shows one key more"},
		{capForgotten, "grad_cap_forgotten", "the slope of the softcap is taken as 1"},
		{turnForgotten, "grad_turn_forgotten", "gradients are computed as if there were no rotation"},
		{metricForgotten, "grad_metric_forgotten", "gradients are computed as if there were no metric"},
		{relativeForgotten, "grad_relative_forgotten", "queries lack the gradient from relative positions"},
		{sinkKeepsSum, "grad_sink_keeps_sum", "the gradient of a sink lacks the sum that the softmax subtracts"},
		{lseIgnored, "grad_lse_ignored", "the incoming gradient of LSE is ignored"},
		{entropyFlipped, "grad_entropy_flipped", "the gradient of the entropy has the wrong sign"},
		{entropyWithoutH, "grad_entropy_without_h", "the gradient of the entropy lacks the entropy itself"},
		{slopesSigned, "grad_slopes_signed", "the gradient of a slope has the wrong sign"},
		{adds, "grad_adds", "outgoing gradients are added to what was there"},
		{neighboursSum, "grad_neighbours_sum", "the sum that the softmax subtracts is that of the row before"},
		{rowsByWorkers, "grad_rows_by_workers", "a team of several workers adds rows up in another order"},
		{rowsByLayout, "grad_rows_by_layout", "rows are added up in another order where the heads of a token are together"},
		{rowsByBatch, "grad_rows_by_batch", "rows are added up in another order where there are several batch entries"},
		{allocatesBackward, "grad_allocates", "Backward allocates"},
		{writesOut, "grad_writes_out", "Backward leaves its sums in Out"},
		{uncheckedGrads, "grad_unchecked", "wrong gradients are not refused"},
		{weightsByLSE, "grad_weights_by_lse", "weights are computed from an LSE in one float32, which far from 0 has lost the logarithm of the sum"},
		{weightsByLSEOfSlopes, "grad_weights_by_lse_of_slopes", "with ALiBi weights are computed from an LSE in one float32, which far from 0 has lost the logarithm of the sum"},
		{asksForAll, "grad_asks_for_all", "without the gradient of K, that of Q is left as it was"},
	} {
		all = append(all, Mutant{Name: m.name, Why: m.why, Kernel: gradient{blocked{m.name, healthy, nil}, m.fault}, Claims: gradientClaims, Backward: true})
	}
	return all
}

const gradientClaims = blockedClaims | attn.NeedGrad

// Gradient returns the healthy softmax kernel with a backward pass, and its claims. Its forward
// pass is Blocked's.
func Gradient() (attn.Kernel, attn.Needs) {
	return gradient{blocked{"gradient", healthy, nil}, sound}, gradientClaims
}

type gradient struct {
	blocked
	fault fault
}

func (k gradient) Check(p attn.Problem, workers int) (int64, error) {
	if err := p.Require(k.name, gradientClaims); err != nil {
		return 0, err
	}
	back := int64(0)
	if p.Want&attn.WantGrad != 0 {
		back = 4 * int64(scalar.GradientFloats(&p))
	}
	p.Want &^= attn.WantGrad
	scratch, err := k.blocked.Check(p, workers)
	return scratch + back, err
}

func (k gradient) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	scratch, err := k.Check(p, team.Workers())
	if err != nil {
		return nil, err
	}
	pl := &gradientPlan{gradient: k, p: p, scratch: scratch, workers: team.Workers(), bent: p}
	p.Want &^= attn.WantGrad
	if pl.p.ReadsLSE() {
		p.Want |= attn.WantLSE
	}
	if pl.forward, err = k.blocked.Plan(p, team); err != nil {
		return nil, err
	}
	if pl.p.Want&attn.WantGrad == 0 {
		return pl.forward, nil
	}
	switch s := &pl.bent.Score; k.fault {
	case capForgotten:
		s.Softcap = 0
	case turnForgotten:
		s.Rope = attn.NoRope
	case metricForgotten:
		if p.QDim() == p.Dim {
			s.Terms &^= attn.TermMetric
		}
	case relativeForgotten:
		s.Terms &^= attn.TermRelative
	}
	pl.score, pl.back = scalar.NewScorer(&pl.p), scalar.NewGradient(&pl.bent)
	return pl, nil
}

// A gradientPlan computes rows one after the other, each with its keys.
type gradientPlan struct {
	gradient
	p, bent attn.Problem // bent is the problem whose gradients are computed
	scratch int64
	workers int
	forward attn.Plan
	score   *scalar.Scorer
	back    *scalar.Gradient
	a       *attn.Args
	g       *attn.Grads
	sum     float64 // the sum that the gradient of the softmax subtracts
}

func (pl *gradientPlan) Scratch() int64 { return pl.scratch }

func (pl *gradientPlan) Forward(a *attn.Args) {
	pl.p.Must(pl.name, a)
	pl.forward.Forward(a)
}

func (pl *gradientPlan) Backward(a *attn.Args, g *attn.Grads) {
	p := &pl.p
	if pl.fault != uncheckedGrads {
		p.MustGrads(pl.name, a, g)
	}
	pl.a, pl.g, pl.sum = a, g, 0
	if pl.fault != adds {
		g.Begin()
	}
	if pl.fault == allocatesBackward {
		pl.g = new(attn.Grads)
		*pl.g = *g
	}
	backwards := pl.fault == rowsByWorkers && pl.workers > 1 || pl.fault == rowsByLayout && a.Q.SH < a.Q.SS || pl.fault == rowsByBatch && p.Batch > 1
	for b := range p.Batch {
		if t := &g.Terms.Bias; pl.fault == lastOfBatch && t.Data != nil {
			clear(t.Data)
		}
		for h := range p.HeadsQ {
			for i, n := 0, a.Queries(p, b); i < n; i++ {
				if row := i; backwards {
					pl.row(b, h, n-1-row)
				} else {
					pl.row(b, h, row)
				}
			}
			if last := h%p.Group() == p.Group()-1; pl.fault == lastOfGroup && !last {
				pl.eachKey(b, h/p.Group(), func(k, v []float32) {
					clear(k)
					clear(v)
				})
			}
		}
		for kv := range p.HeadsKV {
			pl.back.RotateBack(a, g, b, kv)
		}
	}
	if pl.fault == untransposed {
		pl.untransposed()
	}
	if pl.fault == asksForAll && g.K.Data == nil && g.Q.Size() > 0 {
		g.Q.Row(0, 0, 0)[0]++
	}
}

func (pl *gradientPlan) eachKey(b, kv int, f func(k, v []float32)) {
	for j := range pl.a.Keys(&pl.p, b) {
		at, row := pl.a.KRow(&pl.p, b, j)
		if pl.g.K.Data != nil && pl.g.V.Data != nil {
			f(pl.g.K.Row(at, row, kv), pl.g.V.Row(at, row, kv))
		}
	}
}

// untransposed reverses the order of the rows of dK.
func (pl *gradientPlan) untransposed() {
	for b := range pl.p.Batch {
		for kv := range pl.p.HeadsKV {
			var rows [][]float32
			pl.eachKey(b, kv, func(k, _ []float32) { rows = append(rows, k) })
			for i := range len(rows) / 2 {
				x := slices.Clone(rows[i])
				copy(rows[i], rows[len(rows)-1-i])
				copy(rows[len(rows)-1-i], x)
			}
		}
	}
}

// row computes the gradients of one row.
func (pl *gradientPlan) row(b, h, i int) {
	p, a, g := &pl.p, pl.a, pl.g
	at, q := a.QRow(p, b, i)
	pl.score.Query(a, b, i, h)
	pl.back.Query(a, g, b, i, h)
	lse, out, t := a.Stats.LSE.LogSum(at, q, h).Value(), a.Out.Row(at, q, h), p.Temperature()
	broken := math.IsNaN(lse) || math.IsInf(lse, 1)
	top, sum := pl.softmax()
	if f := pl.fault; f == weightsByLSE || f == weightsByLSEOfSlopes && p.Score.Terms&attn.TermALiBi != 0 {
		top, sum = float64(float32(lse)), 1
	}
	log := math.Log(sum)
	var dout []float32
	dlse, dentropy, entropy := 0.0, 0.0, 0.0
	if g.Out.Data != nil {
		dout = g.Out.Row(at, q, h)
	}
	if g.LSE.Data != nil && pl.fault != lseIgnored {
		dlse = float64(g.LSE.Row(at, q, h)[0])
	}
	if g.Entropy.Data != nil {
		dentropy, entropy = float64(g.Entropy.Row(at, q, h)[0]), float64(a.Stats.Entropy.Row(at, q, h)[0])
	}
	switch pl.fault {
	case entropyFlipped:
		dentropy = -dentropy
	case entropyWithoutH:
		entropy = 0
	}
	lo, hi := pl.score.Visible()
	if pl.fault == seesNext {
		hi = min(hi+1, a.Keys(p, b))
	}
	less := along(dout, out)
	switch pl.fault {
	case sumOfProducts:
		less = 0
		for j := lo; j < hi; j++ {
			less += along(dout, pl.score.Value(j))
		}
	case noSum:
		less = 0
	case neighboursSum:
		less, pl.sum = pl.sum, less
	}
	by := func(dp, z float64) float64 {
		x := dp - less + dlse
		if dentropy != 0 {
			x -= dentropy * (z - top - log + entropy)
		}
		return x
	}
	if sink := float64(a.Sink(p, h)); g.Terms.Sinks != nil && !math.IsInf(sink, -1) {
		x := by(0, sink)
		if pl.fault == sinkKeepsSum {
			x += less
		}
		if x *= math.Exp(sink-top) / sum; broken {
			x = math.NaN()
		}
		g.Terms.Sinks[h] += float32(x)
	}
	slope := float32(0)
	if g.Terms.Slopes != nil {
		slope = g.Terms.Slopes[h]
	}
	for j := lo; j < hi; j++ {
		z := float64(pl.score.Score(j)) / t
		if math.IsInf(z, -1) && pl.fault != leaksHidden {
			continue
		}
		w := math.Exp(z-top) / sum
		if broken {
			w = math.NaN()
		}
		if w == 0 && pl.fault != leaksHidden {
			z = 0 // excluded from the entropy
		}
		ds := w * by(along(dout, pl.score.Value(j)), z) / t
		switch pl.fault {
		case scaleMissing:
			ds /= p.Scale()
		case temperatureMissing:
			ds *= t
		}
		if dout != nil {
			pl.back.AddValue(j, float32(w), dout)
		}
		pl.back.AddScore(j, float32(ds))
	}
	if g.Terms.Slopes != nil && pl.fault == slopesSigned {
		g.Terms.Slopes[h] = 2*slope - g.Terms.Slopes[h]
	}
	pl.back.Done()
	if pl.fault == writesOut && len(out) > 0 {
		out[0] = float32(less)
	}
}

// softmax returns the largest z of the row, including the sink's, and the sum of exp(z - top).
func (pl *gradientPlan) softmax() (top, sum float64) {
	top = float64(pl.score.Sink())
	lo, hi := pl.score.Visible()
	for j := lo; j < hi; j++ {
		top = max(top, float64(pl.score.Score(j))/pl.p.Temperature())
	}
	if math.IsInf(top, -1) {
		return 0, 1
	}
	sum = math.Exp(float64(pl.score.Sink()) - top)
	for j := lo; j < hi; j++ {
		sum += math.Exp(float64(pl.score.Score(j))/pl.p.Temperature() - top)
	}
	return top, sum
}

func along(x, y []float32) float64 {
	sum := 0.0
	for c := range x {
		sum += float64(x[c]) * float64(y[c])
	}
	return sum
}
