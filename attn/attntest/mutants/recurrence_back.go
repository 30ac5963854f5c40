package mutants

import (
	"math"

	"attnlab/attn"
)

// A recurrenceBack is a plan with a backward pass, which goes from the last token to the first.
type recurrenceBack struct {
	*recurrencePlan
	reverse *reverse
}

func (pl *recurrenceBack) Backward(a *attn.Args, g *attn.Grads) {
	pl.p.MustGrads(pl.name, a, g)
	g.Begin()
	r := pl.reverse
	pl.a, r.grads = a, g
	for b := range pl.p.Batch {
		for s := range pl.p.StateHeads() {
			r.head(b, s)
		}
	}
	pl.a, r.grads = nil, nil
}

// A reverse computes the gradients of one state head at a time. It keeps the state before each
// chunk, and computes those within a chunk again when it gets there.
//
// A state is dim rows of dim_v numbers, and behind them the dim numbers of the sum of features.
type reverse struct {
	*stretch
	grads  *attn.Grads
	tokens int
	chunk  int // the chunk of states, or -1

	before  []float32 // [chunk] states before each chunk
	states  []float32 // [1+token] states of one chunk
	decayed []float32 // the state of a token after its decay
	ds      []float32 // the gradient of the state

	dFeature, dRow   []float32 // [dim]
	dWritten, missed []float32 // [dim_v]
}

// stateSize returns the length of one state.
func stateSize(p *attn.Problem) int { return p.Dim*p.DimV + p.Dim }

// reverseFloats returns the number of float32 of a reverse.
func reverseFloats(p *attn.Problem) int {
	states := chunksOf(p.SeqKV) + chunkTokens + 1 + 2
	return stretchFloats(p) + states*stateSize(p) + 2*p.Dim + 2*p.DimV
}

// chunksOf returns the number of chunks of n tokens.
func chunksOf(n int) int { return (n + chunkTokens - 1) / chunkTokens }

func newReverse(pl *recurrencePlan) *reverse {
	f := func(n int) []float32 { return make([]float32, n) }
	p, size := &pl.p, stateSize(&pl.p)
	return &reverse{
		stretch: newStretch(pl),
		before:  f(chunksOf(p.SeqKV) * size), states: f((chunkTokens + 1) * size), decayed: f(size), ds: f(size),
		dFeature: f(p.Dim), dRow: f(p.Dim), dWritten: f(p.DimV), missed: f(p.DimV),
	}
}

func (r *reverse) head(b, s int) {
	p, a, g := &r.p, r.a, r.grads
	r.tokens, r.chunk = a.Keys(p, b), -1
	r.begin(b, s)
	r.exact = true
	for t := range r.tokens {
		if t%chunkTokens == 0 {
			r.save(r.before, t/chunkTokens)
		}
		r.write(t)
	}
	clear(r.ds)
	rows := p.Dim * p.DimV
	if g.StateOut != nil {
		x, z := r.part(g.StateOut, b)
		copy(r.ds, x)
		copy(r.ds[rows:], z)
	}
	if n := a.Queries(p, b); r.slip == causeReversed {
		for i := range n {
			r.backQuery(i)
		}
	} else {
		for i := n - 1; i >= 0; i-- {
			r.backQuery(i)
		}
	}
	if g.StateIn != nil {
		x, z := r.part(g.StateIn, b)
		copy(x, r.ds)
		copy(z, r.ds[rows:])
	}
}

// backQuery goes back through query i, then through the keys that the query before it does not see.
func (r *reverse) backQuery(i int) {
	_, hi := r.a.Visible(&r.p, r.b, i)
	lo := 0
	if i > 0 {
		_, lo = r.a.Visible(&r.p, r.b, i-1)
	}
	if r.slip == decayWithoutState && (hi%chunkTokens == 0 || hi == r.tokens) {
		r.loseState(hi)
	}
	if hi > 0 && r.grads.Out.Data != nil {
		r.backRead(i, hi)
	}
	for t := hi - 1; t >= max(lo, 0); t-- {
		r.backWrite(t)
	}
}

// save copies the state, which has been computed, to states[i].
func (r *reverse) save(states []float32, i int) {
	size := stateSize(&r.p)
	copy(states[i*size:][:size], r.x)
	copy(states[i*size+len(r.x):][:len(r.z)], r.z)
}

// at returns the state after n tokens.
func (r *reverse) at(n int) []float32 {
	if from := r.chunk * chunkTokens; r.chunk < 0 || n < from || n > from+chunkTokens {
		r.load(max(n-1, 0) / chunkTokens)
	}
	size := stateSize(&r.p)
	return r.states[(n-r.chunk*chunkTokens)*size:][:size]
}

// load computes the states of a chunk.
func (r *reverse) load(chunk int) {
	size := stateSize(&r.p)
	before := r.before[chunk*size:][:size]
	copy(r.x, before)
	copy(r.z, before[len(r.x):])
	r.restart()
	r.exact, r.chunk = true, chunk
	r.save(r.states, 0)
	for i := range min(chunkTokens, r.tokens-chunk*chunkTokens) {
		r.write(chunk*chunkTokens + i)
		r.save(r.states, i+1)
	}
}

// backRead goes back through the reads of query i, which sees the given number of keys.
func (r *reverse) backRead(i, visible int) {
	p, a, g := &r.p, r.a, r.grads
	batch, row := a.QRow(p, r.b, i)
	state, rows := r.at(visible), len(r.x)
	z, dz := state[rows:], r.ds[rows:]
	group := p.OutHeads() / p.StateHeads()
	for h := r.s * group; h < (r.s+1)*group; h++ {
		at := p.HeadOf(h, p.HeadsQ)
		q, dOut := a.Q.Row(batch, row, at), g.Out.Row(batch, row, h)
		r.setFeature(r.query, q)
		by, dSum := float32(p.Scale()), float32(0)
		if r.slip == scaleForgotten {
			by = 1
		}
		if !p.Linear.Unnormalised {
			eps := float32(p.Linear.Eps)
			if r.slip == epsForgotten {
				eps = 0
			}
			by = 1 / (along32(r.query, z) + eps)
			if r.slip != normaliserConstant {
				dSum = -along32(dOut, a.Out.Row(batch, row, h)) * by
			}
		}
		byQ := by
		if r.slip == scaleForgottenInQ && p.Linear.Unnormalised {
			byQ = 1
		}
		for i := range r.dFeature {
			r.dFeature[i] = byQ*along32(state[i*p.DimV:][:p.DimV], dOut) + dSum*z[i]
		}
		if g.Q.Data != nil {
			r.through(g.Q.Row(batch, row, at), q, q)
		}
		if r.slip == lastQueryHead && h != (r.s+1)*group-1 {
			continue
		}
		for i, f := range r.query {
			for c, d := range dOut {
				r.ds[i*p.DimV+c] += f * by * d
			}
			dz[i] += dSum * f
		}
	}
}

// backWrite goes back through the write of token t, and through its decay.
func (r *reverse) backWrite(t int) {
	p, a, g := &r.p, r.a, r.grads
	batch, row := a.KRow(p, r.b, t)
	head, keys := p.StateHeadOf(r.s, p.ValueHeads()), r.keyHead()
	k, v := a.K.Row(batch, row, keys), a.V.Row(batch, row, head)
	copy(r.decayed, r.at(t))
	r.setGates(t)
	r.setFeature(r.feature, k)
	r.multiplyRows(r.decayed)

	beta := float32(1)
	copy(r.missed, v)
	clear(r.dWritten)
	if p.Linear.Delta {
		beta = r.beta(batch, row)
	}
	for i, f := range r.feature {
		for c := range p.DimV {
			if p.Linear.Delta {
				r.missed[c] -= f * r.decayed[i*p.DimV+c]
			}
			r.dWritten[c] += f * r.ds[i*p.DimV+c]
		}
	}
	for i := range r.dFeature {
		r.dFeature[i] = beta * along32(r.ds[i*p.DimV:][:p.DimV], r.missed)
		if !p.Linear.Unnormalised {
			r.dFeature[i] += r.ds[len(r.x)+i]
		}
	}
	if p.Linear.Delta {
		if g.Terms.Beta.Data != nil {
			d := g.Terms.Beta.Row(batch, row, r.betaHead())
			if r.slip == betaOfLastHead && g.Terms.Beta.H == 1 {
				clear(d)
			}
			if r.slip == betaWithoutRetrieval {
				d[0] += along32(r.dWritten, v)
			} else {
				d[0] += along32(r.dWritten, r.missed)
			}
		}
		for c := range r.dWritten {
			r.dWritten[c] *= beta
		}
		for i, f := range r.feature {
			for c, d := range r.dWritten {
				r.dFeature[i] -= r.decayed[i*p.DimV+c] * d
				r.ds[i*p.DimV+c] -= f * d
			}
		}
	}
	if g.V.Data != nil {
		for c, d := range r.dWritten {
			g.V.Row(batch, row, head)[c] += d
		}
	}
	if g.K.Data != nil {
		at := k
		if n := a.Queries(p, r.b); r.slip == keysAsQueries && n > 0 {
			qBatch, qRow := a.QRow(p, r.b, min(t, n-1))
			at = a.Q.Row(qBatch, qRow, p.HeadOf(r.s*(p.OutHeads()/p.StateHeads()), p.HeadsQ))
		}
		r.through(g.K.Row(batch, row, keys), k, at)
	}
	if g.Terms.Decay.Data != nil {
		d := g.Terms.Decay.Row(batch, row, head)
		for i := range r.gate {
			d[i%len(d)] += r.alongState(i, r.decayed)
		}
	}
	if r.slip != stateInUndecayed || t > 0 {
		r.multiplyRows(r.ds)
	}
}

// multiplyRows multiplies a state by the gates.
func (r *reverse) multiplyRows(state []float32) {
	dv, rows := r.p.DimV, len(r.x)
	for i, gate := range r.gate {
		for c := range state[i*dv:][:dv] {
			state[i*dv+c] *= gate
		}
		state[rows+i] *= gate
	}
}

// alongState returns the product of row i of a state with that of its gradient.
func (r *reverse) alongState(i int, state []float32) float32 {
	dv, rows := r.p.DimV, len(r.x)
	sum := along32(r.ds[i*dv:][:dv], state[i*dv:][:dv])
	if !r.p.Linear.Unnormalised {
		sum += r.ds[rows+i] * state[rows+i]
	}
	return sum
}

// loseState takes the share of the state after n tokens, where a chunk ends, from the gradients of
// that chunk's gates.
func (r *reverse) loseState(n int) {
	p, dDecay := &r.p, &r.grads.Terms.Decay
	if dDecay.Data == nil || n <= 0 {
		return
	}
	state := r.at(n)
	for t := (n - 1) / chunkTokens * chunkTokens; t < n; t++ {
		batch, row := r.a.KRow(p, r.b, t)
		d := dDecay.Row(batch, row, p.StateHeadOf(r.s, p.ValueHeads()))
		for i := range r.gate {
			d[i%len(d)] -= r.alongState(i, state)
		}
	}
}

// through adds the gradient of a row of Q or K to dst, from that of its features, dFeature. The
// slope is that at another row, which is the same but for a mutant.
func (r *reverse) through(dst, row, at []float32) {
	by, constant := r.norm(row)
	byAt, _ := r.norm(at)
	along := 0.0
	for i, x := range row {
		r.dRow[i] = r.dFeature[i] * r.slope(float32(float64(at[i])/byAt))
		along += float64(x) / by * float64(r.dRow[i])
	}
	if constant {
		along = 0
	}
	for i, x := range row {
		dst[i] += float32((float64(r.dRow[i]) - float64(x)/by*along) / by)
	}
}

// slope returns the derivative of the feature map.
func (r *reverse) slope(x float32) float32 {
	switch f := r.p.Linear.Feature; {
	case r.slip == slopeForgotten || f == attn.Identity || x > 0:
		return 1
	case f == attn.EluPlusOne:
		return float32(math.Exp(float64(x)))
	}
	return 0
}
