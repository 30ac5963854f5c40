package oracle

import (
	"math"

	"attnlab/attn"
)

// A bounded number is a value, its error in units of u, and the sum of the sizes of its terms.
type bounded struct{ x, err, size float64 }

// times returns the product with a factor that has no error.
func (n bounded) times(f float64) bounded {
	return bounded{n.x * f, n.err * math.Abs(f), n.size * math.Abs(f)}
}

// loosened returns the number with an error that is larger by the given multiple of the value.
func (n bounded) loosened(by float64) bounded {
	n.err += by * math.Abs(n.x)
	return n
}

// sums are rows of numbers that accumulate over query rows and keys.
type sums struct {
	width int       // numbers of a row
	x     []float64 // the sums
	tol   []float64 // sums of the addends' errors, in units of u
	abs   []float64 // sums of the addends' absolute values
	size  []float64 // sums of the sizes of the addends' terms
	n     []float64 // additions to each row
}

func newSums(rows, width int) sums {
	f := func(n int) []float64 { return make([]float64, n) }
	n := rows * width
	return sums{width: width, x: f(n), tol: f(n), abs: f(n), size: f(n), n: f(rows)}
}

func (s *sums) clear() {
	for _, x := range [][]float64{s.x, s.tol, s.abs, s.size, s.n} {
		clear(x)
	}
}

// add adds the products of w with the numbers of from to a row. abs are the sums of absolute values
// that from was computed from.
func (s *sums) add(row int, w bounded, from, abs []float64) {
	at := row * s.width
	for c, x := range from {
		s.x[at+c] += w.x * x
		s.abs[at+c] += math.Abs(w.x) * abs[c]
		s.tol[at+c] += w.err * abs[c]
		s.size[at+c] += w.size * abs[c]
	}
	s.n[row]++
}

// estimates are numbers with their tolerances and with the sizes of their terms.
type estimates struct{ x, tol, size []float64 }

func newEstimates(n int) estimates {
	return estimates{make([]float64, n), make([]float64, n), make([]float64, n)}
}

// add adds other estimates of as many numbers.
func (e estimates) add(f estimates) {
	for c, x := range f.x {
		y := e.x[c]
		e.x[c] += x
		e.tol[c] += f.tol[c]
		e.size[c] += f.size[c]
		if x != 0 && y != 0 {
			e.tol[c] += u * math.Abs(e.x[c])
		}
	}
}

// row returns a copy of the sums of a row, as estimates.
func (s *sums) row(r int) estimates {
	e, at := newEstimates(s.width), r*s.width
	copy(e.x, s.x[at:])
	copy(e.size, s.size[at:])
	grow := math.Sqrt(s.n[r]) + 4
	for c := range e.x {
		e.tol[c] = u*(s.tol[at+c]+grow*s.abs[at+c]) + (grow+2)*subnormal
		e.size[c] += absolute((grow + 2) * subnormal)
	}
	return e
}

// gradients is the state of judging one backward pass.
type gradients struct {
	*Oracle
	g *attn.Grads
	// the keys and values of the current heads, and the first rows of the current query's heads
	k, v           sums
	firstK, firstV int
	// the current query: from keys, from relative positions
	q, raw                                sums
	bias, slopes, sinks, relative, metric sums
	dout, absDout, one                    []float64
	dlse, dentropy                        float64
	rows                                  int // query rows so far
	each                                  func(name string, at Index, got []float32, want estimates)
	seenQ, seenK                          []bool  // rows of Q and K in use, of a sequence
	turned                                operand // the current query, rotated
}

// JudgeGrads compares every outgoing gradient that is set with the definition. A row whose incoming
// gradients are all 0 costs next to nothing: to judge a large call, keep those of a few rows with
// Thin. With a rule or a state that holds for state heads, so keep the rows of a Sample.
func (o *Oracle) JudgeGrads(g *attn.Grads) (v Verdict, err error) {
	v.Rows, err = o.eachGrad(g, func(name string, at Index, got []float32, want estimates) {
		v.vector(name, at, got, want)
	})
	return v, err
}

// Thin sets the incoming gradients of a call to 0 except in the given rows, and in the states that
// these rows read.
func Thin(p *attn.Problem, a *attn.Args, g *attn.Grads, rows []Index) {
	keep := make(map[Index]bool, len(rows))
	for _, at := range rows {
		keep[at] = true
	}
	if g.StateOut != nil {
		heads := make(map[place]bool)
		for _, at := range rows {
			heads[place{b: at.B, s: stateHead(p, at.H)}] = true
		}
		for b := range p.Batch {
			for s := range p.StateHeads() {
				if at := (place{b: b, s: s}); !heads[at] {
					eachRow(p, "", at, g.StateOut, newEstimates(p.StateLen()/(p.Batch*p.StateHeads())), func(_ string, _ Index, row []float32, _ estimates) { clear(row) })
				}
			}
		}
	}
	for _, at := range All(p, a) {
		if keep[at] {
			continue
		}
		b, row := a.QRow(p, at.B, at.I)
		for _, t := range [...]*attn.Tensor{&g.Out, &g.LSE, &g.Entropy} {
			if t.Data != nil {
				clear(t.Row(b, row, at.H))
			}
		}
	}
}

// EachGrad calls f for each row of the outgoing gradients that are set. at is the index of a query,
// of a key and its head, or of a row of a term's gradient. f gets the row's numbers, the
// definition's and their tolerances. EachGrad returns the number of query rows.
func (o *Oracle) EachGrad(g *attn.Grads, f func(name string, at Index, got []float32, want, tol []float64)) (rows int, err error) {
	return o.eachGrad(g, func(name string, at Index, got []float32, want estimates) { f(name, at, got, want.x, want.tol) })
}

func (o *Oracle) eachGrad(g *attn.Grads, f func(name string, at Index, got []float32, want estimates)) (rows int, err error) {
	p, a := &o.p, o.a
	if err := p.CheckGrads(a, g); err != nil {
		return 0, err
	}
	o.unrounded = true
	defer func() { o.unrounded = false }()
	j := &gradients{
		Oracle: o, g: g, each: f, q: newSums(1, p.Dim), raw: newSums(1, p.QDim()),
		bias: like(&g.Terms.Bias, 1), slopes: newSums(len(g.Terms.Slopes), 1), sinks: newSums(len(g.Terms.Sinks), 1),
		relative: like(&g.Terms.Relative, p.QDim()), metric: like(&g.Terms.Metric, p.Dim),
		dout: make([]float64, p.DimV), absDout: make([]float64, p.DimV), one: []float64{1},
		seenQ: make([]bool, a.Q.B*a.Q.S), seenK: make([]bool, a.K.B*a.K.S),
		turned: operand{make([]float64, p.QDim()), make([]float64, p.QDim())},
	}
	if recurs(p, a) || g.StateIn != nil || g.StateOut != nil {
		j.recurrences()
	} else {
		j.pairs()
	}
	j.terms()
	j.rest()
	return j.rows, nil
}

// like returns sums for the rows of a tensor, width numbers each.
func like(t *attn.Tensor, width int) sums {
	if t.Data == nil {
		return sums{}
	}
	return newSums(t.Size()/max(width, 1), width)
}

// headsEach returns the number of output heads, beginning with a multiple of it, that share no
// operand with other heads.
func headsEach(p *attn.Problem) int {
	each := 1
	for _, heads := range [...]int{p.HeadsQ, p.HeadsKV, p.ValueHeads()} {
		x := p.OutHeads() / max(1, heads)
		a, b := each, x
		for b != 0 {
			a, b = b, a%b
		}
		each *= x / max(1, a)
	}
	return max(1, each)
}

// pairs judges the gradients of a problem that is a sum over pairs.
func (j *gradients) pairs() {
	p, each := &j.p, headsEach(&j.p)
	rows := func(heads int) int { return len(j.row.Weights) * each * heads / max(1, p.OutHeads()) }
	j.k, j.v = newSums(rows(p.HeadsKV), p.Dim), newSums(rows(p.ValueHeads()), p.DimV)
	for b := range p.Batch {
		for h := 0; h < p.OutHeads(); h += each {
			j.heads(b, h, h+each)
		}
	}
}

// heads judges the gradients of the operands of output heads h to end-1, of batch entry b.
func (j *gradients) heads(b, h, end int) {
	p, a := &j.p, j.a
	j.k.clear()
	j.v.clear()
	nk := len(j.row.Weights)
	q0, k0, v0 := p.HeadOf(h, p.HeadsQ), p.HeadOf(h, p.HeadsKV), p.HeadOf(h, p.ValueHeads())
	each := p.OutHeads() / p.HeadsQ // output heads of a query head
	for q := range (end - h) / each {
		for i := range j.queries(b) {
			dq := newEstimates(p.QDim())
			for x := range each {
				at := Index{b, h + q*each + x, i}
				j.rows++
				if j.incoming(at) {
					j.firstK, j.firstV = nk*(p.HeadOf(at.H, p.HeadsKV)-k0), nk*(p.HeadOf(at.H, p.ValueHeads())-v0)
					dq.add(j.by.gradient(j, at))
				}
			}
			batch, row := a.QRow(p, b, i)
			j.seenQ[batch*a.Q.S+row] = true
			if j.g.Q.Data != nil {
				j.each("dQ", Index{b, q0 + q, i}, j.g.Q.Row(batch, row, q0+q), dq)
			}
		}
	}
	for kv := range (end - h) * p.HeadsKV / p.OutHeads() {
		for key := range j.used(b) {
			at := Index{b, k0 + kv, key}
			batch, row := a.KRow(p, b, key)
			j.seenK[batch*a.K.S+row] = true
			if j.g.K.Data != nil {
				dk := j.k.row(kv*nk + key)
				j.by.key(j, at, dk)
				j.each("dK", at, j.g.K.Row(batch, row, at.H), dk)
			}
		}
	}
	for v := range (end - h) * p.ValueHeads() / p.OutHeads() {
		for key := range j.used(b) {
			batch, row := a.KRow(p, b, key)
			if j.g.V.Data != nil {
				j.each("dV", Index{b, v0 + v, key}, j.g.V.Row(batch, row, v0+v), j.v.row(v*nk+key))
			}
		}
	}
}

// incoming reads the incoming gradients of a row, and reports whether they can have an effect.
func (j *gradients) incoming(at Index) (some bool) {
	b, row := j.a.QRow(&j.p, at.B, at.I)
	clear(j.dout)
	if j.g.Out.Data != nil {
		for c, x := range j.g.Out.Row(b, row, at.H) {
			j.dout[c] = float64(x)
			some = some || x != 0
		}
	}
	for c, x := range j.dout {
		j.absDout[c] = math.Abs(x)
	}
	j.dlse, j.dentropy = 0, 0
	if j.g.LSE.Data != nil {
		j.dlse = float64(j.g.LSE.Row(b, row, at.H)[0])
	}
	if j.g.Entropy.Data != nil {
		j.dentropy = float64(j.g.Entropy.Row(b, row, at.H)[0])
	}
	some = some || j.dlse != 0 || j.dentropy != 0
	if !some && j.p.Op.HasLSE() { // 0 times NaN is NaN
		lse := j.a.Stats.LSE.Row(b, row, at.H)[0]
		some = lse != lse || math.IsInf(float64(lse), 1)
	}
	return some
}

// softmaxRow adds a row's contributions to the gradients of keys, values and terms, and returns the
// gradient of its query.
func (j *gradients) softmaxRow(at Index) estimates {
	dlse, dentropy := j.dlse, j.dentropy
	p, a, kv := &j.p, j.a, at.H/j.p.Group()
	r := j.Row(at) // fills j.Oracle.q with the query, and j.keys with the keys that have a weight
	j.q.clear()
	j.raw.clear()
	rootV := math.Sqrt(float64(p.DimV)) + 2
	d := bounded{}
	for c, g := range j.dout {
		d.x += g * r.Out[c]
		d.err += math.Abs(g) * (rootV*math.Abs(r.Out[c]) + r.TolOut[c]/u)
		d.size += math.Abs(g * r.Out[c])
	}
	t, tolLSE := p.Temperature(), r.TolLSE/u
	invalid := math.IsNaN(r.LSE) || math.IsInf(r.LSE, 1)
	// by returns the gradient of z over the weight. dp is dO . V of the key, w the error of z -
	// LSE.
	by := func(dp bounded, z, w float64) bounded {
		x := bounded{dp.x - d.x + dlse, dp.err + d.err + 2*math.Abs(dlse), dp.size + d.size + math.Abs(dlse)}
		if dentropy != 0 {
			x.x -= dentropy * (z - r.LSE + r.Entropy)
			x.err += math.Abs(dentropy) * (w + r.TolEntropy/u + 2*(math.Abs(z-r.LSE)+math.Abs(r.Entropy)))
			x.size += math.Abs(dentropy) * (math.Abs(z-r.LSE) + math.Abs(r.Entropy))
		}
		return x.loosened(1)
	}
	// weighed returns that gradient times a weight whose relative error is w.
	weighed := func(weight, w float64, x bounded) bounded {
		return bounded{weight * x.x, weight*(w*math.Abs(x.x)+x.err) + light/u*math.Abs(x.x), weight*x.size + absolute(light)*math.Abs(x.x)}
	}
	if p.Score.Terms&attn.TermSinks != 0 && j.g.Terms.Sinks != nil {
		sink := float64(a.Terms.Sinks[at.H])
		if weight := math.Exp(sink - r.LSE); weight > 0 || invalid {
			if invalid {
				weight = math.NaN()
			}
			w := tolLSE + 1
			j.sinks.add(at.H, weighed(weight, w, by(bounded{}, sink, w)), j.one, j.one)
		}
	}
	keyed := make([]float64, p.DimV)
	for _, key := range j.keys {
		s, e := j.score(at, key, kv) // fills j.Oracle.k with the key
		weight, z, w := r.Weights[key], s/t, e/t+tolLSE
		if invalid {
			weight = math.NaN()
		}
		j.v.add(key, bounded{weight, weight*w + light/u, weight + absolute(light)}, j.dout, j.absDout)
		copy(keyed, j.key(j.Oracle.v, &a.V, at.B, key, kv))
		dp := bounded{}
		for c, v := range keyed {
			dp.x += j.dout[c] * v
			dp.size += math.Abs(j.dout[c] * v)
		}
		dp.err = rootV * dp.size
		ds := weighed(weight, w, by(dp, z, w)).times(1 / t)
		j.pairTerms(at, key, ds)
		da := ds.times(j.slope)
		da.err += math.Abs(ds.x) * j.errSlope
		j.pairScore(at, key, da.times(p.Scale()))
	}
	return j.back(at)
}

// softmaxKey rotates the gradient of a key back from its position.
func (j *gradients) softmaxKey(at Index, dk estimates) { j.turnBack(dk, at.B, at.I) }

// pairTerms adds the gradient of a score to those of the bias and of the ALiBi slope.
func (j *gradients) pairTerms(at Index, key int, ds bounded) {
	if t := &j.g.Terms.Bias; t.Data != nil {
		j.bias.add(((at.B%t.B*t.S+at.I%t.S)*t.H+at.H%t.H)*t.D+key%t.D, ds, j.one, j.one)
	}
	if j.g.Terms.Slopes != nil {
		far := []float64{-math.Abs(float64(j.position(at) - key))}
		j.slopes.add(at.H, ds.loosened(2), far, []float64{-far[0]})
	}
}

// pairScore adds the gradient of a product, times the scale, to those of the query, the key and the
// relative position.
func (j *gradients) pairScore(at Index, key int, da bounded) {
	p := &j.p
	if p.Score.Rope != attn.NoRope {
		da = da.loosened(3)
	}
	j.q.add(0, da, j.Oracle.k.x, j.Oracle.k.abs)
	metric := 0.0
	if p.Score.Terms&attn.TermMetric != 0 {
		metric = math.Sqrt(float64(p.QDim())) + 2
	}
	j.k.add(key, da.loosened(metric), j.Oracle.q.x, j.Oracle.q.abs)
	if p.Score.Terms&attn.TermRelative == 0 {
		return
	}
	t := &j.a.Terms.Relative
	row := key - at.I + j.queries(at.B) - 1
	if clip := j.a.Terms.RelativeClip; clip > 0 {
		row = clip + max(-clip, min(clip, key-j.position(at)))
	}
	r := make([]float64, 0, t.D)
	abs := make([]float64, 0, t.D)
	for _, x := range t.Row(0, row, at.H%t.H) {
		r, abs = append(r, float64(x)), append(abs, math.Abs(float64(x)))
	}
	j.raw.add(0, da, r, abs)
	if g := &j.g.Terms.Relative; g.Data != nil {
		j.relative.add(row*g.H+at.H%g.H, da, j.Oracle.raw.x, j.Oracle.raw.abs)
	}
}

// back returns the gradient of the row's query as stored: it goes back through metric and rotation,
// and adds that of relative positions.
func (j *gradients) back(at Index) estimates {
	p, a := &j.p, j.a
	dq := j.q.row(0)
	if p.Score.Terms&attn.TermMetric != 0 {
		m, g := &a.Terms.Metric, &j.g.Terms.Metric
		before := newEstimates(p.QDim())
		j.load(&j.turned, j.Oracle.raw.x, at.B, j.position(at), p.Score.Rope)
		for i := range before.x {
			for c, w := range m.Row(0, i, at.H%m.H) {
				before.x[i] += float64(w) * dq.x[c]
				before.tol[i] += math.Abs(float64(w)) * (dq.tol[c] + u*(math.Sqrt(float64(p.Dim))+2)*math.Abs(dq.x[c]))
				before.size[i] += math.Abs(float64(w)) * dq.size[c]
			}
			if g.Data != nil {
				row := (i*g.H + at.H%g.H) * p.Dim
				q, absQ := j.turned.x[i], j.turned.abs[i]
				for c, x := range dq.x {
					j.metric.x[row+c] += q * x
					j.metric.abs[row+c] += absQ * math.Abs(x)
					j.metric.tol[row+c] += absQ * (dq.tol[c]/u + 5*math.Abs(x))
					j.metric.size[row+c] += absQ * dq.size[c]
				}
				j.metric.n[row/max(p.Dim, 1)]++
			}
		}
		dq = before
	}
	j.turnBack(dq, at.B, j.position(at))
	if p.Score.Terms&attn.TermRelative != 0 {
		raw := j.raw.row(0)
		for c := range dq.x {
			dq.x[c] += raw.x[c]
			dq.tol[c] += raw.tol[c] + u*(math.Abs(dq.x[c])+math.Abs(raw.x[c]))
			dq.size[c] += raw.size[c]
		}
	}
	return dq
}

// turnBack rotates a gradient back from a position.
func (j *gradients) turnBack(g estimates, b, pos int) {
	if j.p.Score.Rope == attn.NoRope {
		return
	}
	cos, sin := &j.a.Terms.Cos, &j.a.Terms.Sin
	for c := range cos.D {
		e, f := 2*c, 2*c+1
		if j.p.Score.Rope == attn.RopeHalves {
			e, f = c, c+cos.D
		}
		cs, sn := float64(cos.Row(b%cos.B, pos, 0)[c]), float64(sin.Row(b%sin.B, pos, 0)[c])
		p, q := g.x[e], g.x[f]
		g.x[e], g.x[f] = p*cs+q*sn, q*cs-p*sn
		cs, sn = math.Abs(cs), math.Abs(sn)
		ep, eq := g.tol[e]+3*u*math.Abs(p), g.tol[f]+3*u*math.Abs(q)
		g.tol[e], g.tol[f] = ep*cs+eq*sn, eq*cs+ep*sn
		g.size[e], g.size[f] = g.size[e]*cs+g.size[f]*sn, g.size[f]*cs+g.size[e]*sn
	}
}

// terms judges the gradients of the score terms.
func (j *gradients) terms() {
	t := &j.g.Terms
	for _, o := range [...]struct {
		name string
		t    *attn.Tensor
		s    *sums
	}{{"dBias", &t.Bias, &j.bias}, {"dRelative", &t.Relative, &j.relative}, {"dMetric", &t.Metric, &j.metric}} {
		if o.t.Data == nil || o.s.width == 0 {
			continue
		}
		per := o.t.D / o.s.width // rows of sums in each row of the tensor
		for b := range o.t.B {
			for s := range o.t.S {
				for h := range o.t.H {
					row := o.t.Row(b, s, h)
					for k := range per {
						j.each(o.name, Index{b, h, s}, row[k*o.s.width:][:o.s.width], o.s.row(((b*o.t.S+s)*o.t.H+h)*per+k))
					}
				}
			}
		}
	}
	for _, o := range [...]struct {
		name string
		got  []float32
		s    *sums
	}{{"dSlopes", t.Slopes, &j.slopes}, {"dSinks", t.Sinks, &j.sinks}} {
		for h := range o.got {
			j.each(o.name, Index{H: h}, o.got[h:h+1], o.s.row(h))
		}
	}
}

// rest checks that rows that belong to no sequence, or are not in use, have zero gradients.
func (j *gradients) rest() {
	for _, o := range [...]struct {
		name string
		t    *attn.Tensor
		seen []bool
	}{
		{"dQ", &j.g.Q, j.seenQ},
		{"dK", &j.g.K, j.seenK},
		{"dV", &j.g.V, j.seenK},
		{"dDecay", &j.g.Terms.Decay, j.seenK},
		{"dBeta", &j.g.Terms.Beta, j.seenK},
	} {
		for at, seen := range o.seen {
			if seen || o.t.Data == nil {
				continue
			}
			b, s := at/o.t.S, at%o.t.S
			for h := range o.t.H {
				j.each(o.name, Index{b, h, s}, o.t.Row(b, s, h), newEstimates(o.t.D))
			}
		}
	}
}
