package mutants

import (
	"math"

	"attnlab/attn"
)

// A slip is a switch of Recurrence.
type slip uint8

const (
	none slip = iota
	reluForElu
	reluWithoutOne
	featureOfKeysOnly
	noNormaliser
	noEps
	noScale
	scaleTwice
	readBeforeWrite
	stateNotZeroed
	stateNotWritten
	stateInIgnored
	normaliserForgets
	stateByQueryHead

	expClamped
	decaySplit
	decayCumsum
	decayExclusive
	retrievesUndecayed
	valueHeadModulo
	betaTwice
	lastDecayForgotten
	paddingDecays
	normEpsOutside
	normsSwapped
	raggedStateOfFirst
	snapshotsReversed
	stateInFirstChunk
	normaliserUndecayed

	normaliserConstant
	slopeForgotten
	scaleForgotten
	epsForgotten
	lastQueryHead
	keysAsQueries
	causeReversed
	decayWithoutState
	betaWithoutRetrieval
	stateInUndecayed
	scaleForgottenInQ
	betaOfLastHead
)

func recurrenceMutants() []Mutant {
	var all []Mutant
	for _, m := range []struct {
		slip      slip
		name, why string
	}{
		{reluForElu, "relu_for_elu", "the feature of a negative number is 1, not exp"},
		{reluWithoutOne, "relu_without_one", "relu+1 leaves out the 1"},
		{featureOfKeysOnly, "feature_of_keys_only", "the feature map is not applied to queries"},
		{noNormaliser, "no_normaliser", "the output is not divided by the sum of weights"},
		{noEps, "no_eps", "eps is not added to the normaliser"},
		{noScale, "no_scale", "an unnormalised output is not scaled"},
		{scaleTwice, "scale_twice", "an unnormalised output is scaled twice"},
		{readBeforeWrite, "read_before_write", "an output is computed before the query's own key is added to the state"},
		{stateNotZeroed, "state_not_zeroed", "a call without StateIn starts from what the plan's state held"},
		{stateNotWritten, "state_not_written", "StateOut is the incoming state"},
		{stateInIgnored, "state_in_ignored", "every call starts from zero"},
		{normaliserForgets, "normaliser_forgets", "the sum of features starts from zero, not from StateIn"},
		{stateByQueryHead, "state_by_query_head", "the state of a key head adds its keys once for every query head"},

		{expClamped, "exp_clamped", "exponents of running sums of gates are clamped to 50"},
		{decaySplit, "decay_split", "the decay since a key is e^G at the query times e^-G at the key, which overflows"},
		{decayCumsum, "decay_cumsum", "the decay since a key is exp of a difference of float32 sums, inexact after a large gate"},
		{decayExclusive, "decay_exclusive", "a token decays the state by the gate of the token before it"},
		{retrievesUndecayed, "retrieves_undecayed", "the delta rule retrieves from the state before its decay"},
		{valueHeadModulo, "value_head_modulo", "value head h uses key head h mod n, not h div group"},
		{betaTwice, "beta_twice", "a write is multiplied by beta twice"},
		{lastDecayForgotten, "last_decay_forgotten", "StateOut lacks the decay of the last token"},
		{paddingDecays, "padding_decays", "the last chunk is filled with tokens that decay the state as its last one does"},
		{normEpsOutside, "norm_eps_outside", "eps is added to the root, not to the sum under it"},
		{normsSwapped, "norms_swapped", "each norm is computed as the other"},
		{raggedStateOfFirst, "ragged_state_of_first", "every sequence of a ragged batch starts from the state of the first"},
		{snapshotsReversed, "snapshots_reversed", "the oldest state comes first in StateOut"},
		{stateInFirstChunk, "state_in_first_chunk", "only the first chunk of a call has StateIn"},
		{normaliserUndecayed, "normaliser_undecayed", "the sum of features does not decay"},
	} {
		all = append(all, Mutant{Name: m.name, Why: m.why, Kernel: recurrence{m.name, m.slip, recurrenceForward}, Claims: recurrenceForward})
	}
	for _, m := range []struct {
		slip      slip
		name, why string
	}{
		{normaliserConstant, "back_normaliser_constant", "the sum of weights is taken as a constant"},
		{slopeForgotten, "back_slope_forgotten", "the slope of the feature map is taken as 1"},
		{scaleForgotten, "back_scale_forgotten", "the gradient of an unnormalised output is not scaled"},
		{epsForgotten, "back_eps_forgotten", "eps is not in the denominator"},
		{lastQueryHead, "back_last_query_head", "keys and values have the gradient from the last query head that shares them"},
		{keysAsQueries, "back_keys_as_queries", "the gradient of a key goes through the slope at the query"},
		{causeReversed, "back_cause_reversed", "keys get their gradients from the queries before them"},
		{decayWithoutState, "back_decay_without_state", "the gradient of a gate lacks the share of the state after its chunk"},
		{betaWithoutRetrieval, "back_beta_without_retrieval", "the gradient of beta is that of a write of v, not of v less what is retrieved"},
		{stateInUndecayed, "back_state_in_undecayed", "the gradient of StateIn lacks the decay of the first token"},
		{scaleForgottenInQ, "back_scale_forgotten_in_q", "the gradient of Q is not scaled"},
		{betaOfLastHead, "back_beta_of_last_head", "a shared beta has the gradient from the last value head"},
	} {
		all = append(all, Mutant{Name: m.name, Why: m.why, Kernel: recurrence{m.name, m.slip, recurrenceClaims}, Claims: recurrenceClaims, Backward: true})
	}
	return all
}

const (
	recurrenceForward = attn.NeedLinear | attn.NeedLengths | attn.NeedRagged | attn.AllRules
	recurrenceClaims  = recurrenceForward | attn.NeedGrad
)

// Recurrence returns the healthy linear kernel and its claims.
func Recurrence() (attn.Kernel, attn.Needs) {
	return recurrence{"recurrence", none, recurrenceClaims}, recurrenceClaims
}

type recurrence struct {
	name   string
	slip   slip
	claims attn.Needs
}

func (k recurrence) Name() (algo, is string) { return k.name, isa }

func (k recurrence) Check(p attn.Problem, workers int) (int64, error) {
	if err := p.Require(k.name, k.claims); err != nil {
		return 0, err
	}
	scratch, err := attn.Floats(max(workers, 1), stretchFloats(&p))
	if err != nil || p.Want&attn.WantGrad == 0 {
		return scratch, err
	}
	back, err := attn.Floats(1, reverseFloats(&p))
	return scratch + back, err
}

func (k recurrence) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	scratch, err := k.Check(p, team.Workers())
	if err != nil {
		return nil, err
	}
	pl := &recurrencePlan{recurrence: k, p: p, team: team, scratch: scratch}
	for range team.Workers() {
		pl.workers = append(pl.workers, newStretch(pl))
	}
	pl.task = pl.head
	if p.Want&attn.WantGrad == 0 {
		return pl, nil
	}
	return &recurrenceBack{pl, newReverse(pl)}, nil
}

type recurrencePlan struct {
	recurrence
	p       attn.Problem
	team    *attn.Team
	scratch int64
	workers []*stretch
	a       *attn.Args
	task    func(worker, task int)
}

func (pl *recurrencePlan) Scratch() int64 { return pl.scratch }

func (pl *recurrencePlan) Forward(a *attn.Args) {
	pl.p.Must(pl.name, a)
	pl.a = a
	pl.team.Run(pl.p.Batch*pl.p.StateHeads(), pl.task)
	pl.a = nil
}

// head computes the outputs that read one head of the state, and its StateOut.
func (pl *recurrencePlan) head(worker, task int) {
	r, heads := pl.workers[worker], pl.p.StateHeads()
	r.begin(task/heads, task%heads)
	r.forward()
}

// chunkTokens is the number of tokens after which the state is computed. Chunks start at the
// multiples of it.
const chunkTokens = 16

// A stretch computes one head of the state. It holds the state before a chunk and what each token
// of the chunk writes. The state itself is
//
//	product o x + sum_j (since_j o key_j) written_j^T
//
// The products of gates are multiplied up token by token and start anew, with the state computed,
// where they leave the range 2^-60 to 2^60. Once a number is not finite, the state is computed
// after each token, so that NaN and Inf go where the definition takes them.
type stretch struct {
	*recurrencePlan
	b, s  int
	n     int  // tokens of the chunk so far
	exact bool // the state is computed after each token
	whole bool // a whole chunk has been added to x

	x       []float32 // [dim][dim_v]: the state before the chunk
	now     []float32 // [dim][dim_v]: the state, for queries with NaN or Inf
	z       []float32 // [dim]: the sum of features, up to date
	product []float32 // [dim]: the product of the chunk's gates
	sum     []float32 // [dim]: their logarithm, for the mutants that use it

	keys, since, sums []float32 // [token][dim]: features of K, product of later gates, and sum
	written           []float32 // [token][dim_v]

	gate, log, feature, query []float32 // [dim]
	out                       []float32 // [dim_v]
}

// stretchFloats returns the number of float32 of a stretch.
func stretchFloats(p *attn.Problem) int {
	return 2*p.Dim*p.DimV + 7*p.Dim + chunkTokens*(3*p.Dim+p.DimV) + p.DimV
}

func newStretch(pl *recurrencePlan) *stretch {
	f := func(n int) []float32 { return make([]float32, n) }
	d, dv := pl.p.Dim, pl.p.DimV
	return &stretch{
		recurrencePlan: pl,
		x:              f(d * dv), now: f(d * dv), z: f(d), product: f(d), sum: f(d),
		keys: f(chunkTokens * d), since: f(chunkTokens * d), sums: f(chunkTokens * d), written: f(chunkTokens * dv),
		gate: f(d), log: f(d), feature: f(d), query: f(d), out: f(dv),
	}
}

// begin starts a state head from StateIn.
func (r *stretch) begin(b, s int) {
	r.b, r.s = b, s
	r.restart()
	in := r.a.StateIn
	if in == nil || r.slip == stateInIgnored {
		if r.slip != stateNotZeroed {
			clear(r.x)
			clear(r.z)
		}
		return
	}
	if r.slip == raggedStateOfFirst && r.p.Ragged {
		b = 0
	}
	clear(r.z)
	x, z := r.part(in, b)
	copy(r.x, x)
	if r.slip != normaliserForgets {
		copy(r.z, z)
	}
}

// restart makes x the state before a chunk without tokens.
func (r *stretch) restart() {
	r.n, r.exact, r.whole = 0, false, false
	r.anew()
}

// anew resets the products of gates to 1.
func (r *stretch) anew() {
	for i := range r.product {
		r.product[i], r.sum[i] = 1, 0
	}
}

// part returns the rows of the head in a state, and its sum of features if the state has one.
func (r *stretch) part(state []float32, b int) (x, z []float32) {
	p := &r.p
	at, sums := b*p.StateHeads()+r.s, p.Batch*p.StateHeads()*p.Dim*p.DimV
	x = state[at*p.Dim*p.DimV:][:p.Dim*p.DimV]
	if !p.Linear.Unnormalised {
		z = state[sums+at*p.Dim:][:p.Dim]
	}
	return x, z
}

// forward writes tokens in order, and reads each query once the keys that it sees are written.
func (r *stretch) forward() {
	p, a := &r.p, r.a
	tokens, late := a.Keys(p, r.b), max(1, p.Linear.Snapshots)
	for i := tokens; i < late; i++ {
		r.store(i)
	}
	done := 0
	for i := range a.Queries(p, r.b) {
		_, hi := a.Visible(p, r.b, i)
		now := hi
		if r.slip == readBeforeWrite {
			now--
		}
		for ; done < now; done++ {
			r.write(done)
		}
		r.read(i, hi)
		for ; done < hi; done++ {
			r.write(done)
		}
		if left := tokens - done; 0 < left && left < late {
			r.fold()
			r.store(left)
		}
	}
	if tokens == 0 {
		return
	}
	switch {
	case r.slip == lastDecayForgotten:
		r.undo()
	case r.slip == paddingDecays && tokens%chunkTokens != 0:
		for range chunkTokens - tokens%chunkTokens {
			r.decay()
		}
	}
	r.fold()
	if r.slip != stateNotWritten {
		r.store(0)
	} else if a.StateIn != nil && a.StateOut != nil {
		r.begin(r.b, r.s)
		r.store(0)
	}
}

// store writes the state, which has been computed, to StateOut.
func (r *stretch) store(snapshot int) {
	if r.a.StateOut == nil {
		return
	}
	if r.slip == snapshotsReversed {
		snapshot = max(1, r.p.Linear.Snapshots) - 1 - snapshot
	}
	x, z := r.part(r.a.StateOut[snapshot*r.p.StateLen():], r.b)
	copy(x, r.x)
	copy(z, r.z)
}

// write adds token t to the state.
func (r *stretch) write(t int) {
	p, a := &r.p, r.a
	batch, row := a.KRow(p, r.b, t)
	r.setGates(t)
	r.setFeature(r.feature, a.K.Row(batch, row, r.keyHead()))
	v := a.V.Row(batch, row, p.StateHeadOf(r.s, p.ValueHeads()))
	if r.n == chunkTokens {
		r.fold()
	}
	if !finite(r.gate) || !finite(r.feature) || !finite(v) {
		r.beExact()
	}
	if r.slip == retrievesUndecayed {
		r.retrieve(r.out, r.feature)
	}
	r.decay()
	if r.slip != retrievesUndecayed && p.Linear.Delta {
		r.retrieve(r.out, r.feature)
		if !r.exact && !finite(r.out) {
			r.beExact()
			r.retrieve(r.out, r.feature)
		}
	}
	u := r.written[r.n*p.DimV:][:p.DimV]
	copy(u, v)
	if p.Linear.Delta {
		beta := r.beta(batch, row)
		if r.slip == betaTwice {
			beta *= beta
		}
		for c := range u {
			u[c] = beta * (u[c] - r.out[c])
		}
	}
	at := r.n * p.Dim
	copy(r.keys[at:], r.feature)
	copy(r.sums[at:], r.sum)
	for i := range p.Dim {
		r.since[at+i] = 1
		if r.slip == stateByQueryHead && p.OutHeads() > 0 {
			r.since[at+i] = float32(p.OutHeads() / p.StateHeads())
		}
	}
	r.n++
	if r.exact || !finite(u) {
		r.beExact()
	}
	for i, f := range r.feature {
		if r.slip != normaliserUndecayed {
			r.z[i] *= r.gate[i]
		}
		r.z[i] += f
	}
}

// keyHead returns the head of K that the state head uses.
func (r *stretch) keyHead() int {
	if r.slip == valueHeadModulo {
		return r.s % r.p.HeadsKV
	}
	return r.p.StateHeadOf(r.s, r.p.HeadsKV)
}

func (r *stretch) beta(batch, row int) float32 {
	return r.a.Terms.Beta.Row(batch, row, r.betaHead())[0]
}

func (r *stretch) betaHead() int {
	if r.a.Terms.Beta.H == 1 {
		return 0
	}
	return r.p.StateHeadOf(r.s, r.p.ValueHeads())
}

// setGates sets the gates of token t and their logarithms.
func (r *stretch) setGates(t int) {
	for i := range r.gate {
		r.gate[i], r.log[i] = 1, 0
	}
	if r.slip == decayExclusive {
		t--
	}
	if r.p.Linear.Gate == attn.NoGate || t < 0 {
		return
	}
	batch, row := r.a.KRow(&r.p, r.b, t)
	g := r.a.Terms.Decay.Row(batch, row, r.p.StateHeadOf(r.s, r.p.ValueHeads()))
	for i := range r.gate {
		r.log[i] = g[i%len(g)]
		r.gate[i] = exp(r.log[i])
	}
}

// decay multiplies the state by the gates.
func (r *stretch) decay() {
	if r.slip == expClamped || r.slip == decaySplit || r.slip == decayCumsum {
		r.decayBySums()
	} else if !r.near() {
		r.fold()
		r.multiply()
		r.fold()
	} else {
		r.multiply()
	}
	if r.exact {
		r.fold()
	}
}

// near reports whether the products of gates stay in their range.
func (r *stretch) near() bool {
	for i, g := range r.gate {
		if y := r.product[i] * g; !(0x1p-60 <= y && y <= 0x1p60) {
			return false
		}
	}
	return true
}

func (r *stretch) multiply() {
	for i, g := range r.gate {
		r.product[i] *= g
		for at := i; at < r.n*len(r.gate); at += len(r.gate) {
			r.since[at] *= g
		}
	}
}

// decayBySums computes the products of gates from sums of logarithms, as some mutants do.
func (r *stretch) decayBySums() {
	for i, g := range r.log {
		r.sum[i] += g
		r.product[i] = r.ratio(r.sum[i], 0)
		for at := i; at < r.n*len(r.log); at += len(r.log) {
			r.since[at] = r.ratio(r.sum[i], r.sums[at])
		}
	}
}

// ratio returns the product of the gates after a sum of logarithms.
func (r *stretch) ratio(sum, after float32) float32 {
	switch r.slip {
	case expClamped:
		return exp(max(sum, -50)) * exp(min(-after, 50))
	case decaySplit:
		return exp(sum) * exp(-after)
	}
	return exp(sum - after)
}

// fold adds the chunk to x.
func (r *stretch) fold() {
	if r.n == chunkTokens && r.slip == stateInFirstChunk && !r.whole {
		clear(r.x)
		r.whole = true
	}
	r.compute(r.x)
	r.n = 0
	r.anew()
}

// compute sets x, which may be r.x, to the state.
func (r *stretch) compute(x []float32) {
	d, dv := r.p.Dim, r.p.DimV
	for i := range d {
		row := x[i*dv:][:dv]
		for c, before := range r.x[i*dv:][:dv] {
			row[c] = r.product[i] * before
		}
		for j := range r.n {
			f := r.since[j*d+i] * r.keys[j*d+i]
			for c, u := range r.written[j*dv:][:dv] {
				row[c] += f * u
			}
		}
	}
}

// beExact computes the state, and has it computed after each token from now on.
func (r *stretch) beExact() {
	r.exact = true
	r.fold()
}

// undo takes the last token's decay from all but its own write.
func (r *stretch) undo() {
	d := r.p.Dim
	for i, g := range r.gate {
		r.product[i] /= g
		for j := range max(r.n-1, 0) {
			r.since[j*d+i] /= g
		}
	}
}

// retrieve sets y to S^T f.
func (r *stretch) retrieve(y, f []float32) {
	d, dv := r.p.Dim, r.p.DimV
	clear(y)
	for i := range d {
		g := r.product[i] * f[i]
		for c, x := range r.x[i*dv:][:dv] {
			y[c] += g * x
		}
	}
	for j := range r.n {
		w := float32(0)
		for i := range d {
			w += r.since[j*d+i] * r.keys[j*d+i] * f[i]
		}
		for c, u := range r.written[j*dv:][:dv] {
			y[c] += w * u
		}
	}
}

// read computes the outputs of query i, which sees the given number of keys.
func (r *stretch) read(i, visible int) {
	p, a := &r.p, r.a
	batch, row := a.QRow(p, r.b, i)
	group := p.OutHeads() / p.StateHeads()
	for h := r.s * group; h < (r.s+1)*group; h++ {
		dst := a.Out.Row(batch, row, h)
		if visible <= 0 {
			clear(dst)
			continue
		}
		q := a.Q.Row(batch, row, p.HeadOf(h, p.HeadsQ))
		r.setFeature(r.query, q)
		if r.slip == featureOfKeysOnly && p.Linear.Norm == attn.NoNorm {
			copy(r.query, q)
		}
		r.retrieve(dst, r.query)
		if !finite(r.query) || !finite(dst) {
			r.compute(r.now)
			multiply(dst, r.now, r.query)
		}
		factor := r.factor()
		for c := range dst {
			dst[c] *= factor
		}
	}
}

// factor returns the scale, or 1 over the normaliser.
func (r *stretch) factor() float32 {
	scale := float32(r.p.Scale())
	switch unnormalised := r.p.Linear.Unnormalised; {
	case unnormalised && r.slip == noScale, !unnormalised && r.slip == noNormaliser:
		return 1
	case unnormalised && r.slip == scaleTwice:
		return scale * scale
	case unnormalised:
		return scale
	}
	eps := float32(r.p.Linear.Eps)
	if r.slip == noEps {
		eps = 0
	}
	return 1 / (along32(r.query, r.z) + eps)
}

// setFeature sets f to the features of a row of Q or K.
func (r *stretch) setFeature(f, row []float32) {
	by, _ := r.norm(row)
	for i, x := range row {
		f[i] = r.featureOf(float32(float64(x) / by))
	}
}

// norm returns what a row of Q or K is divided by, and reports whether that is a constant.
func (r *stretch) norm(row []float32) (by float64, constant bool) {
	l := &r.p.Linear
	sum := float64(along32(row, row))
	kind := l.Norm
	if r.slip == normsSwapped && kind != attn.NoNorm {
		kind = attn.NormSum + attn.NormMax - kind
	}
	switch {
	case kind == attn.NoNorm:
		return 1, true
	case kind == attn.NormSum && r.slip == normEpsOutside:
		return math.Sqrt(sum) + l.NormEps, false
	case kind == attn.NormSum:
		return math.Sqrt(sum + l.NormEps), false
	}
	by = math.Sqrt(sum)
	return max(by, l.NormEps), by <= l.NormEps
}

func (r *stretch) featureOf(x float32) float32 {
	f := r.p.Linear.Feature
	switch {
	case f == attn.Identity:
		return x
	case f == attn.ReluPlusOne && r.slip == reluWithoutOne:
		return max(x, 0)
	case x > 0:
		return x + 1
	case f == attn.EluPlusOne && r.slip != reluForElu:
		return exp(x)
	case x != x:
		return x
	}
	return 1
}

func exp(x float32) float32 { return float32(math.Exp(float64(x))) }

// finite reports whether all numbers are finite.
func finite(x []float32) bool {
	for _, y := range x {
		if y-y != 0 {
			return false
		}
	}
	return true
}

// multiply sets y to x^T f.
func multiply(y, x, f []float32) {
	clear(y)
	for i, g := range f {
		for c, e := range x[i*len(y):][:len(y)] {
			y[c] += g * e
		}
	}
}

func along32(x, y []float32) float32 {
	sum := float32(0)
	for i := range x {
		sum += x[i] * y[i]
	}
	return sum
}
