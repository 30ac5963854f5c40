package oracle

import (
	"math"
	"slices"

	"attnlab/attn"
)

// chunk is the number of tokens that a chunked form may sum over at a time, beside the channels.
const chunk = 64

// A recurrence computes one state head of one sequence, token by token. Its state has a column for
// each column of V. A normalised problem has one more, the denominators z, whose v is 1.
type recurrence struct {
	o      *Oracle
	before []float32 // the incoming state of the call, nil for zeros

	b, s   int // the sequence and the state head
	tokens int // tokens written
	width  int // columns of the state
	c      float64
	state  state
	at     token
	q, dot []float64 // the current query, and the products with it
	abs    []float64
}

// A state is a matrix [dim][width] with bounds of the errors of its columns.
type state struct {
	x    []float64
	norm []float64 // the Euclidean norm of each column

	// The norm of each column's error, in units of u, is the sum of two. Errors of gates add up:
	// the gates of a head may all be wrong in the same direction. Roundings add up like random
	// numbers.
	drift, noise []float64

	most float64 // a bound of the numbers in x
	top  float64 // the largest finite bound so far
}

func newState(dim, width int) state {
	f := func(n int) []float64 { return make([]float64, n) }
	return state{x: f(dim * width), norm: f(width), drift: f(width), noise: f(width)}
}

// err returns the bound of the error of column c, which is finite.
func (s *state) err(c int) float64 {
	if e := s.drift[c] + s.noise[c]; e <= math.MaxFloat64 {
		return e
	}
	return math.MaxFloat64
}

// copyTo copies a state to one of the same size.
func (s *state) copyTo(to *state) {
	copy(to.x, s.x)
	copy(to.norm, s.norm)
	copy(to.drift, s.drift)
	copy(to.noise, s.noise)
	to.most, to.top = s.most, s.top
}

// measure fills norm and most from x.
func (s *state) measure() {
	clear(s.norm)
	s.most = 0
	for i := 0; i < len(s.x); i += len(s.norm) {
		for c, x := range s.x[i:][:len(s.norm)] {
			s.norm[c] += x * x
			s.most = math.Max(s.most, math.Abs(x))
		}
	}
	roots(s.norm)
	s.remember()
}

// remember keeps the largest bound so far. Bounds that are too large for float32 come from columns
// that are infinite, which other columns do not see.
func (s *state) remember() {
	if s.most <= math.MaxFloat32 {
		s.top = max(s.top, s.most)
	}
}

// narrow makes numbers infinite that float32 cannot hold.
func (s *state) narrow() {
	for i, x := range s.x {
		s.x[i] = narrow(x)
	}
	s.measure()
}

func roots(x []float64) {
	for i := range x {
		x[i] = math.Sqrt(x[i])
	}
}

// narrow returns x, or an infinity if float32 cannot hold x.
func narrow(x float64) float64 {
	if math.Abs(x) > math.MaxFloat32 {
		if r := float64(float32(x)); math.IsInf(r, 0) {
			return r
		}
	}
	return x
}

// A token holds what one token does to the state.
type token struct {
	k, v  []float64 // features of the key; the value, with 1 for z
	alpha []float64 // the decay of each row of the state
	beta  float64
	errK  float64 // relative error of the norm of k, in units of u
	normK float64

	decays bool    // some alpha is not 1
	most   float64 // the largest |alpha|
	grow   float64 // the norm of 1 - beta k k^T
	writes bool    // k and beta are not 0

	dot, abs []float64 // S~^T k, and the same sum of absolute values
	miss, u  []float64 // v - S~^T k, and what is written
}

func newToken(dim, width int) token {
	f := func(n int) []float64 { return make([]float64, n) }
	return token{k: f(dim), v: f(width), alpha: f(dim), dot: f(width), abs: f(width), miss: f(width), u: f(width)}
}

// copyTo copies a token to one of the same size.
func (t *token) copyTo(to *token) {
	own := *to
	*to = *t
	to.k, to.v, to.alpha, to.dot, to.abs, to.miss, to.u = own.k, own.v, own.alpha, own.dot, own.abs, own.miss, own.u
	copy(to.k, t.k)
	copy(to.v, t.v)
	copy(to.alpha, t.alpha)
	copy(to.dot, t.dot)
	copy(to.abs, t.abs)
	copy(to.miss, t.miss)
	copy(to.u, t.u)
}

// recurs reports whether the oracle computes a call token by token.
func recurs(p *attn.Problem, a *attn.Args) bool {
	return p.Rule() || a.StateIn != nil || a.StateOut != nil
}

func newRecurrence(o *Oracle) *recurrence {
	p := &o.p
	width := p.DimV
	if !p.Linear.Unnormalised {
		width++
	}
	f := func(n int) []float64 { return make([]float64, n) }
	before := o.a.StateIn
	if len(before) > 0 && len(o.a.StateOut) > 0 && &before[0] == &o.a.StateOut[0] {
		before = slices.Clone(before)
	}
	return &recurrence{
		o: o, before: before, s: -1, width: width, c: math.Sqrt(float64(p.Dim)) + math.Sqrt(chunk) + 6, state: newState(p.Dim, width),
		at: newToken(p.Dim, width),
		q:  f(p.Dim), dot: f(width), abs: f(width),
	}
}

// begin places the recurrence before the first token of a sequence.
func (r *recurrence) begin(b, s int) {
	r.b, r.s, r.tokens = b, s, 0
	x := &r.state
	clear(x.x)
	clear(x.drift)
	clear(x.noise)
	x.top = 0
	if r.before != nil {
		r.unpack(x.x, r.before, b, s)
	}
	x.measure()
}

// unpack copies the state of a head from the form of Args.StateIn.
func (r *recurrence) unpack(to []float64, from []float32, b, s int) {
	p := &r.o.p
	head, heads := b*p.StateHeads()+s, p.Batch*p.StateHeads()
	for i := range p.Dim {
		for c := range p.DimV {
			to[i*r.width+c] = float64(from[(head*p.Dim+i)*p.DimV+c])
		}
		if r.width > p.DimV {
			to[i*r.width+p.DimV] = float64(from[heads*p.Dim*p.DimV+head*p.Dim+i])
		}
	}
}

// reach computes the state of a head after the given number of tokens.
func (r *recurrence) reach(b, s, tokens int) {
	if r.b != b || r.s != s || r.tokens > tokens {
		r.begin(b, s)
	}
	for r.tokens < tokens {
		r.load(r.tokens)
		r.decay()
		r.write()
		r.tokens++
	}
}

// load fills r.at with a token, but for its products with the state.
func (r *recurrence) load(i int) {
	o, at := r.o, &r.at
	p, a := &o.p, o.a
	o.key(at.k, &a.K, r.b, i, p.StateHeadOf(r.s, p.HeadsKV))
	at.errK = mapped(&p.Linear, at.k)
	value := p.StateHeadOf(r.s, p.ValueHeads())
	o.key(at.v, &a.V, r.b, i, value)
	if r.width > p.DimV {
		at.v[p.DimV] = 1
	}
	b, row := a.KRow(p, r.b, i)
	at.decays, at.most = false, 1
	if t := &a.Terms.Decay; p.Linear.Gate != attn.NoGate {
		at.most = 0
		g := t.Data[b*t.SB+row*t.SS+value*t.SH:]
		for c := range at.alpha {
			if c > 0 && t.D == 1 {
				at.alpha[c] = at.alpha[0]
				continue
			}
			at.alpha[c] = narrow(math.Exp(float64(g[c])))
			at.decays = at.decays || at.alpha[c] != 1
			at.most = math.Max(at.most, at.alpha[c])
		}
	}
	at.beta, at.grow = 1, 1
	sum := 0.0
	for _, x := range at.k {
		sum += x * x
	}
	at.normK = math.Sqrt(sum)
	if t := &a.Terms.Beta; p.Linear.Delta {
		at.beta = float64(t.Data[b*t.SB+row*t.SS+p.StateHeadOf(r.s, t.H)*t.SH])
		at.grow = math.Max(1, math.Abs(1-at.beta*sum))
	}
	at.writes = at.normK != 0 && at.beta != 0
}

// scaled multiplies a bound by a factor. Nothing is left of an error whose state is multiplied by
// 0.
func scaled(bound, by float64) float64 {
	if by == 0 {
		return 0
	}
	return bound * by
}

// decay multiplies the state by the gates of r.at.
func (r *recurrence) decay() {
	s, at := &r.state, &r.at
	if !at.decays {
		return
	}
	clear(s.norm)
	for i, alpha := range at.alpha {
		row := s.x[i*r.width:][:r.width]
		sum := s.norm[:len(row)]
		for c := range row {
			x := alpha * row[c]
			row[c] = x
			sum[c] += x * x
		}
	}
	roots(s.norm)
	if s.most *= at.most; !(s.most <= math.MaxFloat32) {
		s.narrow()
	}
	for c, norm := range s.norm {
		s.drift[c] = scaled(s.drift[c], at.most) + 2*norm
		s.noise[c] = scaled(s.noise[c], at.most)
	}
}

// write adds what r.at writes to the decayed state.
func (r *recurrence) write() {
	s, at, p := &r.state, &r.at, &r.o.p
	if p.Linear.Delta {
		products(at.dot, at.abs, s.x, at.k)
		for c, v := range at.v {
			at.miss[c] = narrow(v - narrow(at.dot[c]))
			at.u[c] = narrow(at.beta * at.miss[c])
		}
	} else {
		copy(at.u, at.v)
	}
	clear(s.norm)
	mostK, mostU := 0.0, 0.0
	for i, k := range at.k {
		row := s.x[i*r.width:][:r.width]
		sum, u := s.norm[:len(row)], at.u[:len(row)]
		for c := range row {
			x := row[c] + k*u[c]
			row[c] = x
			sum[c] += x * x
		}
		mostK = math.Max(mostK, math.Abs(k))
	}
	roots(s.norm)
	for _, u := range at.u {
		mostU = math.Max(mostU, math.Abs(u))
	}
	if s.most += mostK * mostU; !(s.most <= math.MaxFloat32) {
		s.narrow()
	}
	s.remember()
	for c := range s.norm {
		s.drift[c] *= at.grow
		s.noise[c] = math.Hypot(s.noise[c]*at.grow, r.rounding(c))
	}
}

// rounding returns the error that writing r.at adds to column c.
func (r *recurrence) rounding(c int) float64 {
	at := &r.at
	switch delta := r.o.p.Linear.Delta; {
	case !at.writes, !delta && at.u[c] == 0:
		return 0
	case delta:
		return 2*r.state.norm[c] + at.normK*(math.Abs(at.beta)*((r.c+at.errK)*at.abs[c]+math.Abs(at.v[c]))+(4+at.errK)*math.Abs(at.u[c]))
	}
	return 2*r.state.norm[c] + at.normK*(4+at.errK)*math.Abs(at.u[c])
}

// products computes x^T y of a matrix x of len(y) rows, and the same sums of absolute values.
func products(to, abs, x, y []float64) {
	clear(to)
	clear(abs)
	for i, f := range y {
		row := x[i*len(to):][:len(to)]
		abs := abs[:len(row)]
		to := to[:len(row)]
		for c, x := range row {
			x *= f
			to[c] += x
			abs[c] += math.Abs(x)
		}
	}
}

// lost returns the absolute error of a number of the state, from numbers too small for float32.
func (r *recurrence) lost() float64 {
	l := (math.Sqrt(float64(r.tokens)) + 6) * (math.Sqrt(float64(r.o.p.Dim)) + 2) * subnormal
	switch {
	case r.tokens == 0:
		return 0
	case r.o.p.Linear.Gate != attn.NoGate:
		l += (math.Sqrt(float64(r.tokens)) + 6) * flush * (1 + r.state.top)
	}
	return l
}

// query loads the features of a row's query, and returns the error of mapped and their norm.
func (r *recurrence) query(at Index) (err, norm float64) {
	copy(r.q, r.o.rawQuery(at))
	err = mapped(&r.o.p.Linear, r.q)
	for _, x := range r.q {
		norm += x * x
	}
	return err, math.Sqrt(norm)
}

// row computes a row's outputs.
func (r *recurrence) row(at Index) {
	o := r.o
	p, to := &o.p, &o.row
	r.reach(at.B, stateHead(p, at.H), at.I+1)
	to.Visible = at.I + 1
	errQ, normQ := r.query(at)
	products(r.dot, r.abs, r.state.x, r.q)
	sum := 0.0
	for _, x := range r.q {
		sum += math.Abs(x)
	}
	lost := sum*r.lost() + 6*subnormal
	tol := func(c int) float64 { return u * (normQ*r.state.err(c) + (r.c+errQ)*r.abs[c]) }
	by, den, errDen := p.Scale(), 1.0, 0.0
	if r.width > p.DimV {
		den = narrow(narrow(r.dot[p.DimV]) + p.Linear.Eps)
		by, errDen = 1/den, tol(p.DimV)+lost
	}
	for c := range to.Out {
		x := narrow(narrow(r.dot[c]) * p.Scale())
		if r.width > p.DimV {
			x = narrow(narrow(r.dot[c]) / den)
		}
		to.Out[c] = x
		to.TolOut[c] = certain(math.Abs(by)*(tol(c)+math.Abs(x)*errDen) + 2*u*math.Abs(x))
		to.SizeOut[c] = math.Abs(by) * normQ * r.state.norm[c]
		to.rounded(c, certain(math.Abs(by)*lost+6*subnormal))
		to.SizeOut[c] = holding(to.TolOut[c], to.SizeOut[c])
	}
}

// certain returns a tolerance. NaN is no tolerance: nothing is known there.
func certain(tol float64) float64 {
	if math.IsNaN(tol) {
		return math.Inf(1)
	}
	return tol
}

// holding returns the size of a number whose tolerance is a bound at any size: it is large enough
// that the tolerance always holds. If the tolerance is too wide the number still is not judged.
func holding(tol, size float64) float64 {
	if math.IsInf(tol, 0) {
		return size
	}
	return math.Max(size, tol/void)
}

// stateHead returns the state head that output head h reads.
func stateHead(p *attn.Problem, h int) int { return p.HeadOf(h, p.StateHeads()) }

// snapshot returns the state that is reached, as pack does.
func (r *recurrence) snapshot() estimates {
	e := newEstimates(r.o.p.Dim * r.width)
	r.pack(&r.state, e)
	lost := r.lost()
	for i := range e.x {
		if e.tol[i] != 0 { // else no token has changed it
			e.tol[i], e.size[i] = e.tol[i]+lost, e.size[i]+absolute(lost)
			e.size[i] = holding(e.tol[i], e.size[i])
		}
	}
	return e
}

// pack fills estimates with a state in the order of Args.StateIn: rows of S, then z.
func (r *recurrence) pack(s *state, e estimates) {
	p := &r.o.p
	for i := range p.Dim {
		for c, norm := range s.norm {
			to := i*p.DimV + c
			if c == p.DimV {
				to = p.Dim*p.DimV + i
			}
			e.x[to], e.tol[to], e.size[to] = s.x[i*r.width+c], u*s.err(c), norm
		}
	}
}

// mapped applies the norm and the feature map to a row of Q or K. It returns the relative error of
// the norm, in units of u.
func mapped(l *attn.Linear, x []float64) (err float64) {
	if l.Norm != attn.NoNorm {
		var by float64
		by, err = length(l, x)
		for i := range x {
			x[i] /= by
		}
	}
	if l.Feature == attn.Identity {
		return err
	}
	for i := range x {
		x[i] = feature(l.Feature, x[i])
	}
	return err
}

// length returns what the norm divides a row by, and the relative error of the quotient in units of
// u.
func length(l *attn.Linear, x []float64) (by, err float64) {
	sum := 0.0
	for _, x := range x {
		sum += x * x
	}
	if l.Norm == attn.NormSum {
		sum += l.NormEps
	}
	if r := float64(float32(sum)); r == 0 || math.IsInf(r, 0) {
		sum = r
	}
	by, err = math.Sqrt(sum), math.Sqrt(float64(len(x)))/2+4
	if l.Norm == attn.NormMax && !(by > l.NormEps) && !math.IsNaN(by) {
		return l.NormEps, err
	}
	if sum > 0 {
		err += flush / (2 * u * sum)
	}
	return by, err
}
