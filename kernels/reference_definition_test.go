package kernels_test

import (
	"encoding/binary"
	"math"

	"attnlab/attn"
)

// This file defines attention in float64. It is written from the doc of package attn alone and
// shares no code with package oracle or with a kernel. TestReference holds every kernel to it.

const (
	rounding = 0x1p-24  // half of the distance from 1 to the next float32
	noWeight = 0x1p-250 // upper bound of a weight that is 0 in float32, however it is computed
	tiny     = 0x1p-70  // smaller weights are ignored: float32 may not hold them
	behind   = 64       // largest distance of the reference of a sum from the largest z
	oneLSE   = 1 << 12  // the largest LSE that one float32 holds well enough, by the doc of Merge
)

// A number is a result of the definition, with a first-order bound for its error in float32.
type number struct {
	x    float64
	err  float64 // the bound; +Inf: nothing is promised
	size float64 // sum of the sizes of the terms of x, which may cancel
}

// operand returns the number of an operand.
func operand(x float32) number { return number{x: float64(x), size: math.Abs(float64(x))} }

// rounded returns a number that was rounded once, as a constant is.
func rounded(x float64) number { return number{x, rounding * math.Abs(x), math.Abs(x)} }

// unpromised returns a number that may have any value.
func unpromised() number { return number{err: math.Inf(1)} }

func (a number) times(b number) number {
	x := a.x * b.x
	err := a.err*(math.Abs(b.x)+b.err) + math.Abs(a.x)*b.err + rounding*math.Abs(x)
	return number{x, err, a.size * b.size}
}

func (a number) plus(b number) number {
	size := a.size + b.size
	return number{a.x + b.x, a.err + b.err + rounding*size, size}
}

func (a number) minus(b number) number { return a.plus(number{-b.x, b.err, b.size}) }

// over returns the quotient. If the divisor may be 0, the result is unpromised.
func (a number) over(b number) number {
	if b.err >= math.Abs(b.x) {
		return unpromised()
	}
	x, least := a.x/b.x, math.Abs(b.x)-b.err
	return number{x, (a.err+math.Abs(x)*b.err)/least + rounding*math.Abs(x), a.size / math.Abs(b.x)}
}

// restored returns a score as a by-product: a kernel may hold it as a base-2 logarithm, and convert
// it back.
func (a number) restored() number {
	if !math.IsInf(a.x, 0) {
		a.err += 2 * rounding * a.size
	}
	return a
}

// growth bounds the roundings of a sum of n numbers, and of a few more operations, as a multiple of
// rounding times the sum of the numbers' sizes. If one number is added after another, each addition
// rounds a partial sum, which is half of the whole on average.
func growth(n int) float64 { return float64(n)/2 + 6 }

// A total is a sum in any order.
type total struct {
	x, err, size float64
	n            int
}

func (t *total) add(a number) {
	t.x, t.err, t.size, t.n = t.x+a.x, t.err+a.err, t.size+a.size, t.n+1
}

func (t *total) number() number {
	if t.n == 0 {
		return number{}
	}
	return number{t.x, t.err + growth(t.n)*rounding*t.size, t.size}
}

// numbers returns a row of sums.
func numbers(sums []total) []number {
	to := make([]number, len(sums))
	for i := range sums {
		to[i] = sums[i].number()
	}
	return to
}

func dot(a, b []number) number {
	var t total
	for i, x := range a {
		t.add(x.times(b[i]))
	}
	return t.number()
}

// An output is the definition's value of a tensor that a kernel writes.
type output struct {
	name    string
	tensor  *attn.Tensor
	d       int      // elements of a row; 1 for an LSE, although it may be stored as two numbers
	numbers []number // in the order [batch][row][head][element]
	sums    []total  // the numbers of a gradient, until it is complete
}

func (o *output) at(b, s, h, d int) int { return ((b*o.tensor.S+s)*o.tensor.H+h)*o.d + d }

// row returns the numbers of a row of an output, or none if the call does not have the output.
func (o *output) row(b, s, h int) []number {
	if o == nil {
		return nil
	}
	from := o.at(b, s, h, 0)
	return o.numbers[from : from+o.d]
}

// set fills a row with one number.
func (o *output) set(b, s, h int, x number) {
	for d, row := 0, o.row(b, s, h); d < len(row); d++ {
		row[d] = x
	}
}

// A reference is one call by definition.
type reference struct {
	p       *attn.Problem
	a       *attn.Args
	g       *attn.Grads // nil: forward only
	merged  bool        // the results are merged from partial results of parts of the keys
	outputs []*output

	// The outputs; nil: the call does not have it.
	out, lse, mean, entropy, max, weights, scores *output
	dQ, dK, dV                                    *output
	dBias, dSlopes, dSinks, dRelative, dMetric    *output
	stateOut, dStateIn, dDecay, dBeta             *output

	most    [][]int       // for each row of ArgMax, the keys that it may be; nil: any
	logSums []attn.LogSum // for each row, the LSE as two numbers
}

// refer computes a call by definition.
func refer(p *attn.Problem, a *attn.Args, g *attn.Grads, merged bool) *reference {
	r := &reference{p: p, a: a, g: g, merged: merged}
	rows := a.Q.B * a.Q.S * p.HeadsQ
	r.logSums = make([]attn.LogSum, rows)
	if a.Stats.ArgMax != nil {
		r.most = make([][]int, rows)
	}
	s := &a.Stats
	r.out = r.rowwise("Out", &a.Out, p.DimV)
	r.lse = r.rowwise("LSE", &s.LSE, 1)
	r.mean = r.rowwise("Mean", &s.Mean, 1)
	r.entropy = r.rowwise("Entropy", &s.Entropy, 1)
	r.max = r.rowwise("Max", &s.Max, 1)
	r.weights = r.rowwise("Weights", &s.Weights, s.Weights.D)
	r.scores = r.rowwise("Scores", &s.Scores, s.Scores.D)
	r.stateOut = r.listed("StateOut", a.StateOut)
	if g != nil {
		t := &g.Terms
		slopes := attn.Tensor{Data: t.Slopes, B: 1, S: 1, H: 1, D: len(t.Slopes)}
		sinks := attn.Tensor{Data: t.Sinks, B: 1, S: 1, H: 1, D: len(t.Sinks)}
		r.dQ, r.dK, r.dV = r.gradient("dQ", &g.Q), r.gradient("dK", &g.K), r.gradient("dV", &g.V)
		r.dBias, r.dSlopes, r.dSinks = r.gradient("dBias", &t.Bias), r.gradient("dSlopes", &slopes), r.gradient("dSinks", &sinks)
		r.dRelative, r.dMetric = r.gradient("dRelative", &t.Relative), r.gradient("dMetric", &t.Metric)
		r.dDecay, r.dBeta, r.dStateIn = r.gradient("dDecay", &t.Decay), r.gradient("dBeta", &t.Beta), r.listed("dStateIn", g.StateIn)
	}
	for b := range p.Batch {
		for s := range r.stateHeads() {
			if r.recurs() {
				r.recur(b, s)
			} else {
				r.keyHead(b, s)
			}
		}
	}
	for _, o := range r.outputs {
		if o.sums != nil {
			o.numbers = numbers(o.sums)
		}
	}
	return r
}

// rowwise adds an output that has a row for each query and head. Rows that belong to no sequence
// are unpromised.
func (r *reference) rowwise(name string, t *attn.Tensor, d int) *output {
	if t.Data == nil && t.Bits == nil {
		return nil
	}
	o := &output{name: name, tensor: t, d: d, numbers: make([]number, t.B*t.S*t.H*d)}
	for i := range o.numbers {
		o.numbers[i] = unpromised()
	}
	r.outputs = append(r.outputs, o)
	return o
}

// listed adds an output that is a list of numbers.
func (r *reference) listed(name string, x []float32) *output {
	return r.rowwise(name, &attn.Tensor{Data: x, B: 1, S: 1, H: 1, D: len(x)}, len(x))
}

// gradient adds an output that is a sum.
func (r *reference) gradient(name string, t *attn.Tensor) *output {
	if t.Data == nil {
		return nil
	}
	o := &output{name: name, tensor: t, d: t.D, sums: make([]total, t.Size())}
	r.outputs = append(r.outputs, o)
	return o
}

// add adds a number to a gradient, if the call wants it.
func (o *output) add(b, s, h, d int, x number) {
	if o != nil {
		o.sums[o.at(b, s, h, d)].add(x)
	}
}

// numbersOf reads a row of an operand.
func numbersOf(t *attn.Tensor, b, s, h int) []number {
	row := make([]number, t.D)
	for i, x := range t.Read(make([]float32, t.D), b, s, h) {
		row[i] = operand(x)
		if t.Type == attn.I8 { // the product with the scale is rounded, or computed later
			row[i].err = rounding * row[i].size
		}
	}
	return row
}

// broadcast returns index i, or 0 in an extent of 1.
func broadcast(i, extent int) int {
	if extent == 1 {
		return 0
	}
	return i
}

func (r *reference) queries(b int) int {
	if r.p.Ragged {
		return int(r.a.QStart[b+1] - r.a.QStart[b])
	}
	return r.a.Q.S
}

func (r *reference) keys(b int) int {
	switch a := r.a; {
	case a.KLen != nil:
		return int(a.KLen[b])
	case r.p.Page != 0:
		return r.p.SeqKV
	case r.p.Ragged:
		return int(a.KStart[b+1] - a.KStart[b])
	}
	return r.a.K.S
}

// position returns the position of query 0 of a batch entry.
func (r *reference) position(b int) int {
	switch {
	case r.a.QPos != nil:
		return int(r.a.QPos[b])
	case r.p.Mask.Align == attn.TopLeft:
		return 0
	}
	return r.keys(b) - r.queries(b)
}

// place returns the batch and row of query i in the tensors of queries.
func (r *reference) place(b, i int) (batch, row int) {
	if r.p.Ragged {
		return 0, int(r.a.QStart[b]) + i
	}
	return b, i
}

// keyPlace returns the batch and row of key j in K and V.
func (r *reference) keyPlace(b, j int) (batch, row int) {
	switch page := r.p.Page; {
	case page != 0:
		each := (r.p.SeqKV + page - 1) / page
		return int(r.a.Pages[b*each+j/page]), j % page
	case r.p.Ragged:
		return 0, int(r.a.KStart[b]) + j
	}
	return b, j
}

// visible reports whether band and bitmap show a key in use to a query.
func (r *reference) visible(b, i, h, j int) bool {
	m, bits := &r.p.Mask, &r.a.Allowed
	pos := r.position(b) + i
	if m.Band && (m.Left != attn.Unbounded && j < pos-m.Left || m.Right != attn.Unbounded && j > pos+m.Right) {
		return false
	}
	if m.Bitmap == attn.NoBitmap {
		return true
	}
	if m.Bitmap == attn.BlockBitmap {
		i, j = i/m.Block, j/m.Block
	}
	at := broadcast(b, bits.B)*bits.SB + broadcast(i, bits.S)*bits.SS + broadcast(h, bits.H)*bits.SH + broadcast(j, bits.D)
	if m.Bitmap == attn.BoolBitmap {
		return bits.Bool[at]
	}
	return bits.Words[at/64]>>(at%64)&1 != 0
}

// turn rotates a row to a position, or back from it.
func (r *reference) turn(row []number, b, pos int, back bool) []number {
	if r.p.Score.Rope == attn.NoRope {
		return row
	}
	t := &r.a.Terms
	cos, sin := numbersOf(&t.Cos, broadcast(b, t.Cos.B), pos, 0), numbersOf(&t.Sin, broadcast(b, t.Sin.B), pos, 0)
	to := append([]number(nil), row...)
	for c := range cos {
		x, y := 2*c, 2*c+1
		if r.p.Score.Rope == attn.RopeHalves {
			x, y = c, c+len(cos)
		}
		if back {
			sin[c].x = -sin[c].x
		}
		to[x] = row[x].times(cos[c]).minus(row[y].times(sin[c]))
		to[y] = row[x].times(sin[c]).plus(row[y].times(cos[c]))
	}
	return to
}

func (r *reference) scale() float64 {
	if s := r.p.Score.Scale; s != 0 {
		return s
	}
	return 1 / math.Sqrt(float64(r.p.Dim))
}

func (r *reference) temperature() float64 {
	if t := r.p.Score.Temp; t != 0 {
		return t
	}
	return 1
}

// limit reports whether the temperature is a limit.
func (r *reference) limit() bool { return r.frozen() || math.IsInf(r.p.Score.Temp, 1) }

func (r *reference) frozen() bool { return r.p.Score.Temp == attn.Frozen }

// lowest returns the least value that a bias can make of a score.
func (r *reference) lowest() float64 {
	if r.limit() {
		return -math.MaxFloat32
	}
	return max(-math.MaxFloat32, -math.MaxFloat32*math.Ln2*r.temperature())
}

// A keyHead is the data that the queries of a key head and a value head share: the keys in use,
// after rotation, and their values.
type keyHead struct {
	b, kv, vh int
	k, v      [][]number
	twin      []int     // for each key, the first key with the same row
	dK        [][]total // [key]: gradients
}

// keyHead computes the queries of a batch entry that share a key head and a value head: pair s of
// these.
func (r *reference) keyHead(b, s int) {
	p, n, seen := r.p, r.keys(b), map[string]int{}
	kv, vh := s*r.p.HeadsKV/r.stateHeads(), s*r.valueHeads()/r.stateHeads()
	m := &keyHead{b: b, kv: kv, vh: vh, k: make([][]number, n), v: make([][]number, n), twin: make([]int, n), dK: make([][]total, n)}
	for j := range n {
		batch, row := r.keyPlace(b, j)
		k := numbersOf(&r.a.K, batch, row, kv)
		m.twin[j] = j
		if name := nameOf(k); p.Score.Rope == attn.NoRope {
			if first, ok := seen[name]; ok {
				m.twin[j] = first
			} else {
				seen[name] = j
			}
		}
		if p.Op == attn.OpLinear {
			m.k[j] = r.features(k)
		} else {
			m.k[j] = r.turn(k, b, j, false)
		}
		m.v[j] = numbersOf(&r.a.V, batch, row, vh)
		m.dK[j] = make([]total, p.Dim)
	}
	group := r.outHeads() / r.stateHeads()
	for h := s * group; h < (s+1)*group; h++ {
		for i := range r.queries(b) {
			if p.Op == attn.OpLinear {
				r.linearRow(m, i, h)
			} else {
				r.softmaxRow(m, i, h)
			}
		}
	}
	for j := range m.dK {
		batch, at := r.keyPlace(b, j)
		row := r.turn(numbers(m.dK[j]), b, j, true)
		if p.Op == attn.OpLinear {
			row = r.featureBack(numbersOf(&r.a.K, batch, at, kv), row)
		}
		for d, x := range row {
			r.dK.add(batch, at, kv, d, x)
		}
	}
}

// nameOf returns the same text for rows of the same numbers.
func nameOf(row []number) string {
	var s []byte
	for _, x := range row {
		s = binary.LittleEndian.AppendUint64(s, math.Float64bits(x.x+0)) // -0 becomes 0
	}
	return string(s)
}

// A pair is a query and a key that it sees, or the sink.
type pair struct {
	j       int    // -1 for the sink
	s, z    number // the score, and the score over the temperature
	damp    number // the derivative of the softcap
	kind    kind
	p, logP number // the weight and its logarithm
}

// A kind identifies pairs of a row with the same operands: they have the same score, whatever its
// roundings.
type kind struct {
	key, relative, distance int
	bias                    float64
	sink, lowest            bool
}

// A query is a row of Q: as stored, after rotation, and after rotation and metric.
type query struct {
	b, i, h, pos       int
	raw, turned, meets []number
	zero               bool // all of raw is 0
}

func (r *reference) query(b, i, h int) *query {
	batch, row := r.place(b, i)
	q := &query{b: b, i: i, h: h, pos: r.position(b) + i, raw: numbersOf(&r.a.Q, batch, row, h), zero: true}
	for _, x := range q.raw {
		q.zero = q.zero && x.x == 0
	}
	q.turned = r.turn(q.raw, b, q.pos, false)
	q.meets = q.turned
	if r.p.Score.Terms&attn.TermMetric != 0 {
		sums := make([]total, r.p.Dim)
		for c, x := range q.turned {
			for d, g := range r.metric(c, h) {
				sums[d].add(x.times(g))
			}
		}
		q.meets = numbers(sums)
	}
	return q
}

// metric returns a row of the metric of a head.
func (r *reference) metric(c, h int) []number {
	t := &r.a.Terms.Metric
	return numbersOf(t, 0, c, broadcast(h, t.H))
}

// relative returns the row of the table for a pair.
func (r *reference) relative(q *query, j int) int {
	if c := r.a.Terms.RelativeClip; c != 0 {
		return min(max(j-q.pos, -c), c) + c
	}
	return j - q.i + r.queries(q.b) - 1
}

func (r *reference) relativeRow(q *query, j int) []number {
	t := &r.a.Terms.Relative
	return numbersOf(t, 0, r.relative(q, j), broadcast(q.h, t.H))
}

// pair computes a score. If a bias makes it infinite, the other fields are unset.
func (r *reference) pair(m *keyHead, q *query, j int) pair {
	score, scale := &r.p.Score, rounded(r.scale())
	to := pair{j: j, damp: number{x: 1, size: 1}, kind: kind{key: m.twin[j]}}
	s := dot(q.meets, m.k[j]).times(scale)
	if score.Terms&attn.TermRelative != 0 {
		s = s.plus(dot(q.raw, r.relativeRow(q, j)).times(scale))
		to.kind.relative = r.relative(q, j)
	}
	if q.zero { // products are 0 whatever the keys are
		to.kind = kind{}
	}
	if limit := score.Softcap; limit != 0 {
		t := math.Tanh(s.x / limit)
		err := max(math.Tanh((s.x+s.err)/limit)-t, t-math.Tanh((s.x-s.err)/limit)) + 4*rounding*math.Abs(t)
		s = number{limit * t, limit*err + rounding*limit*math.Abs(t), limit * math.Abs(t)}
		to.damp = number{1 - t*t, 2*math.Abs(t)*err + 3*rounding, 1 + t*t}
	}
	if score.Terms&attn.TermALiBi != 0 {
		distance := max(q.pos-j, j-q.pos)
		s = s.minus(operand(r.a.Terms.Slopes[q.h]).times(rounded(float64(distance))))
		to.kind.distance = distance
	}
	if score.Terms&attn.TermBias != 0 {
		b := &r.a.Terms.Bias
		bias := operand(b.Data[broadcast(q.b, b.B)*b.SB+broadcast(q.i, b.S)*b.SS+broadcast(q.h, b.H)*b.SH+broadcast(j, b.D)])
		if math.IsInf(bias.x, 0) {
			return pair{j: j, s: bias}
		}
		s, to.kind.bias = s.plus(bias), bias.x
		if low := r.lowest(); s.x <= low {
			s, to.kind = rounded(low), kind{lowest: true}
		}
	}
	to.s = s
	return to
}

// softmaxRow computes one query of one head.
func (r *reference) softmaxRow(m *keyHead, i, h int) {
	q := r.query(m.b, i, h)
	batch, row := r.place(m.b, i)
	r.scores.set(batch, row, h, number{x: math.Inf(-1)})
	r.weights.set(batch, row, h, number{})
	var pairs []pair
	var infinite []int // keys with a score of +Inf
	for j := range m.k {
		if !r.visible(m.b, i, h, j) {
			continue
		}
		x := r.pair(m, q, j)
		if r.scores != nil {
			r.scores.row(batch, row, h)[j] = x.s.restored()
		}
		switch {
		case math.IsInf(x.s.x, 1):
			infinite = append(infinite, j)
		case !math.IsInf(x.s.x, -1):
			pairs = append(pairs, x)
		}
	}
	at := (batch*r.a.Q.S+row)*r.p.HeadsQ + h
	if infinite != nil {
		r.infiniteRow(m, batch, row, h, at, infinite)
		return
	}
	r.largest(pairs, batch, row, h, at)
	t := r.temperature()
	for k := range pairs {
		if s := pairs[k].s; !r.limit() {
			pairs[k].z = number{s.x / t, (s.err + 2*rounding*s.size) / t, s.size / t}
		}
	}
	if r.p.Score.Terms&attn.TermSinks != 0 && !math.IsInf(float64(r.a.Terms.Sinks[h]), -1) {
		z := rounded(float64(r.a.Terms.Sinks[h]))
		pairs = append(pairs, pair{j: -1, s: z.times(rounded(t)), z: z, kind: kind{sink: true}})
	}
	if r.merged { // the reference of a partial result is rounded too
		for k := range pairs {
			pairs[k].z.err += 2 * rounding * pairs[k].z.size
		}
	}
	lse := r.soften(pairs, at)
	for k := range pairs { // and so is the logarithm of its sum
		if x := &pairs[k]; r.merged {
			x.p.err += 2 * rounding * behind * x.p.x
		}
	}
	out, ent := r.mix(m, pairs), entropy(pairs)
	near := math.Abs(lse.x) <= oneLSE
	if near { // a kernel may compute LSE - sum p z as written
		ent.err += growth(len(pairs)) * rounding * math.Abs(lse.x)
	}
	copy(r.out.row(batch, row, h), out)
	r.lse.set(batch, row, h, lse)
	r.mean.set(batch, row, h, mean(pairs))
	r.entropy.set(batch, row, h, ent)
	for _, x := range pairs {
		if r.weights != nil && x.j >= 0 {
			r.weights.row(batch, row, h)[x.j] = x.p
		}
	}
	if r.g == nil {
		return
	}
	// A kernel may compute weights again, from scores with other roundings and a rounded LSE.
	for k := range pairs {
		if x := &pairs[k]; near && x.p.size != 0 {
			again := x.z.err + 2*rounding*math.Abs(lse.x)
			x.p.err += again * x.p.x
			x.logP.err += again
		}
	}
	r.backward(m, q, pairs, out, ent)
}

// infiniteRow computes a row with scores of +Inf.
func (r *reference) infiniteRow(m *keyHead, batch, row, h, at int, keys []int) {
	first := keys[0]
	if len(keys) > 1 {
		for _, o := range []*output{r.out, r.lse, r.mean, r.entropy, r.max} {
			o.set(batch, row, h, number{x: math.NaN()})
		}
		// The doc does not say whether scores, and weights of hidden keys, belong to the row.
		r.weights.set(batch, row, h, unpromised())
		r.scores.set(batch, row, h, unpromised())
		for _, j := range keys {
			if r.weights != nil {
				r.weights.row(batch, row, h)[j] = number{x: math.NaN()}
			}
		}
		first, r.logSums[at].Ref = -1, math.NaN()
	} else {
		r.logSums[at].Ref = math.Inf(1)
		copy(r.out.row(batch, row, h), m.v[first])
		for _, o := range []*output{r.lse, r.mean, r.max} {
			o.set(batch, row, h, number{x: math.Inf(1)})
		}
		r.entropy.set(batch, row, h, number{})
		if r.weights != nil {
			r.weights.row(batch, row, h)[first] = number{x: 1, size: 1}
		}
	}
	if r.most != nil {
		r.most[at] = []int{first}
	}
}

// largest computes Max and ArgMax: the first of the keys with the same score, or any of the keys
// whose scores are closer than their roundings.
func (r *reference) largest(pairs []pair, batch, row, h, at int) {
	least, most, top := math.Inf(-1), math.Inf(-1), number{x: math.Inf(-1)}
	for _, k := range pairs {
		s := k.s.restored()
		least, most = max(least, s.x-s.err), max(most, s.x+s.err)
		if s.x > top.x {
			top = s
		}
	}
	if len(pairs) > 0 {
		top.err = max(top.x-least, most-top.x)
	}
	r.max.set(batch, row, h, top)
	if r.most == nil {
		return
	}
	seen := map[kind]bool{}
	for _, k := range pairs {
		if s := k.s.restored(); s.x+s.err >= least && !seen[k.kind] {
			r.most[at] = append(r.most[at], k.j)
			seen[k.kind] = true
		}
	}
	if len(pairs) == 0 {
		r.most[at] = []int{-1}
	}
}

// A class is the pairs of a row that have one kind.
type class struct{ n, z, err float64 }

// classes sorts pairs by kind, and returns the class of each.
func (r *reference) classes(pairs []pair) (all []class, of []int) {
	index := map[kind]int{}
	for _, k := range pairs {
		z := k.z
		if r.frozen() {
			z = k.s
		}
		c, ok := index[k.kind]
		if !ok {
			c = len(all)
			index[k.kind] = c
			all = append(all, class{z: z.x, err: z.err})
		}
		all[c].n++
		of = append(of, c)
	}
	return all, of
}

// freeze sets z in the limit T -> 0. A class that may have the largest score gets all the weight if
// it is the only one. Otherwise its weight is unknown.
func freeze(all []class) {
	least, top, few := math.Inf(-1), math.Inf(-1), 0
	for _, c := range all {
		least, top = max(least, c.z-c.err), max(top, c.z)
	}
	for _, c := range all {
		if c.z+c.err >= least {
			few++
		}
	}
	for i := range all {
		switch c := &all[i]; {
		case c.z+c.err < least:
			c.z, c.err = math.Inf(-1), 0
		case few == 1:
			c.z, c.err = 0, 0
		default:
			c.z, c.err = (c.z-top)*1e30, 1e300
		}
	}
}

// soften computes weights from scores, and returns the LSE. Each z may be off by its bound, and
// pairs of one kind are off by the same error. So the weight of a kind is largest if its z is as
// high and the others are as low as possible, and smallest in the opposite case.
func (r *reference) soften(pairs []pair, at int) number {
	if len(pairs) == 0 {
		r.logSums[at] = attn.LogSum{Ref: math.Inf(-1)}
		return number{x: math.Inf(-1)}
	}
	all, of := r.classes(pairs)
	if r.frozen() {
		freeze(all)
	}
	top := math.Inf(-1)
	for _, c := range all {
		top = max(top, c.z)
	}
	n := len(all)
	// Logarithms of each class's share of the sum, by the doc and at both bounds.
	low, mid, high := make([]float64, n), make([]float64, n), make([]float64, n)
	for i, c := range all {
		if !r.limit() {
			c.err += rounding * (top - c.z + 8) // rounding of exp
		}
		mid[i] = math.Log(c.n) + (c.z - top)
		low[i], high[i] = mid[i]-c.err, mid[i]+c.err
	}
	othersLow, othersMid, othersHigh := logSumsExcept(low), logSumsExcept(mid), logSumsExcept(high)
	p, logP := make([]number, n), make([]number, n)
	for i, c := range all {
		each := math.Log(c.n)
		least, x, most := -log1pExp(othersHigh[i]-low[i])-each, -log1pExp(othersMid[i]-mid[i])-each, -log1pExp(othersLow[i]-high[i])-each
		logP[i] = number{x, max(most-x, x-least) + 4*rounding*(1+math.Abs(x)), math.Abs(x)}
		if math.Exp(most) >= noWeight {
			x := math.Exp(x)
			err := max(math.Exp(most)-x, x-math.Exp(least)) + growth(len(pairs))*rounding*x + tiny/1024
			p[i] = number{x, err, max(x, tiny)}
		}
	}
	for k, c := range of {
		pairs[k].p, pairs[k].logP = p[c], logP[c]
	}
	sum := logSum(mid)
	r.logSums[at] = attn.LogSum{Ref: top, Log: sum}
	x := top + sum
	err := max(logSum(high)-sum, sum-logSum(low)) + rounding*(math.Abs(x)+math.Abs(sum)+growth(len(pairs)))
	return number{x, err, math.Abs(top) + math.Abs(sum) + 1}
}

// log1pExp returns log(1+exp(x)).
func log1pExp(x float64) float64 {
	if x > 40 {
		return x
	}
	return math.Log1p(math.Exp(x))
}

// logAdd returns log(exp(a)+exp(b)).
func logAdd(a, b float64) float64 {
	if a < b {
		a, b = b, a
	}
	if math.IsInf(b, -1) {
		return a
	}
	return a + math.Log1p(math.Exp(b-a))
}

// logSum returns the logarithm of the sum of the exponentials of numbers.
func logSum(x []float64) float64 {
	sum := math.Inf(-1)
	for _, y := range x {
		sum = logAdd(sum, y)
	}
	return sum
}

// logSumsExcept returns, for each number, the logSum of the others.
func logSumsExcept(x []float64) []float64 {
	to := make([]float64, len(x))
	before, after := math.Inf(-1), math.Inf(-1)
	for i, y := range x {
		to[i] = before
		before = logAdd(before, y)
	}
	for i := len(x) - 1; i >= 0; i-- {
		to[i] = logAdd(to[i], after)
		after = logAdd(after, x[i])
	}
	return to
}

// average returns sum p x over pairs. Weights sum to 1, so an error in a weight counts in
// proportion to the distance of its x from the average.
func average(pairs []pair, x func(k *pair) number) number {
	var t total
	for i := range pairs {
		if k := &pairs[i]; k.p.size != 0 {
			y := x(k)
			t.add(number{k.p.x * y.x, k.p.x * y.err, k.p.size * y.size})
		}
	}
	for i := range pairs {
		if k := &pairs[i]; k.p.size != 0 {
			t.err += k.p.err * math.Abs(x(k).x-t.x)
		}
	}
	return t.number()
}

func mean(pairs []pair) number {
	return average(pairs, func(k *pair) number { return k.s.restored() })
}

// entropy returns -sum p log p, whose derivative by a weight is -1 - log p.
func entropy(pairs []pair) number {
	h := average(pairs, func(k *pair) number {
		return number{-k.logP.x, rounding * (behind + 2*math.Abs(k.logP.x)), 1 + k.logP.size}
	})
	h.x = max(h.x, 0) // not -0
	return h
}

// mix computes the output row.
func (r *reference) mix(m *keyHead, pairs []pair) []number {
	out := make([]number, r.p.DimV)
	for d := range out {
		out[d] = average(pairs, func(k *pair) number {
			if k.j < 0 {
				return number{}
			}
			return m.v[k.j][d]
		})
	}
	return out
}

// incoming reads a row of an incoming gradient: zeros if it is not set.
func incoming(t *attn.Tensor, b, s, h, d int) []number {
	if t.Data == nil {
		return make([]number, d)
	}
	return numbersOf(t, b, s, h)
}

// backward adds the contributions of one query of one head to the gradients.
func (r *reference) backward(m *keyHead, q *query, pairs []pair, out []number, ent number) {
	p, g, scale := r.p, r.g, rounded(r.scale())
	batch, row := r.place(q.b, q.i)
	dOut := incoming(&g.Out, batch, row, q.h, p.DimV)
	dLSE, dEntropy := incoming(&g.LSE, batch, row, q.h, 1)[0], incoming(&g.Entropy, batch, row, q.h, 1)[0]
	common := dLSE.minus(dot(dOut, out))
	dMeets, dRaw := make([]total, p.Dim), make([]total, len(q.raw))
	for k := range pairs {
		x := &pairs[k]
		if x.p.size == 0 {
			continue
		}
		dz := common
		if dEntropy.size != 0 {
			dz = dz.minus(dEntropy.times(x.logP.plus(ent)))
		}
		if x.j < 0 {
			r.dSinks.add(0, 0, 0, q.h, x.p.times(dz))
			continue
		}
		keyBatch, keyRow := r.keyPlace(q.b, x.j)
		for d, y := range dOut {
			r.dV.add(keyBatch, keyRow, m.kv, d, x.p.times(y))
		}
		dz = x.p.times(dz.plus(dot(dOut, m.v[x.j])))
		ds := dz.times(rounded(1 / r.temperature()))
		if r.dBias != nil {
			t := r.dBias.tensor
			r.dBias.add(broadcast(q.b, t.B), broadcast(q.i, t.S), broadcast(q.h, t.H), broadcast(x.j, t.D), ds)
		}
		r.dSlopes.add(0, 0, 0, q.h, ds.times(rounded(-math.Abs(float64(q.pos-x.j)))))
		da := ds.times(x.damp).times(scale)
		for d, y := range m.k[x.j] {
			dMeets[d].add(da.times(y))
			m.dK[x.j][d].add(da.times(q.meets[d]))
		}
		if p.Score.Terms&attn.TermRelative != 0 {
			for d, y := range r.relativeRow(q, x.j) {
				dRaw[d].add(da.times(y))
				r.dRelative.add(0, r.relative(q, x.j), broadcast(q.h, r.a.Terms.Relative.H), d, da.times(q.raw[d]))
			}
		}
	}
	meets := numbers(dMeets)
	turned := meets
	if p.Score.Terms&attn.TermMetric != 0 {
		turned = make([]number, len(q.raw))
		for c := range turned {
			turned[c] = dot(r.metric(c, q.h), meets)
			for d, y := range meets {
				r.dMetric.add(0, c, broadcast(q.h, r.a.Terms.Metric.H), d, q.turned[c].times(y))
			}
		}
	}
	for d, x := range r.turn(turned, q.b, q.pos, true) {
		r.dQ.add(batch, row, q.h, d, x.plus(dRaw[d].number()))
	}
}

// normed divides a row of Q or K of a linear problem by its length, and returns the factor too.
func (r *reference) normed(row []number) (to []number, factor number) {
	l, one := r.p.Linear, number{x: 1, size: 1}
	if l.Norm == attn.NoNorm {
		return row, one
	}
	var squares total
	for _, x := range row {
		squares.add(x.times(x))
	}
	if l.Norm == attn.NormSum {
		squares.add(rounded(l.NormEps))
	}
	square := squares.number()
	length := number{x: math.Sqrt(square.x)}
	length.err, length.size = square.err/(2*length.x)+rounding*length.x, length.x
	if l.Norm == attn.NormMax && length.x < l.NormEps {
		length = rounded(l.NormEps)
	}
	factor = one.over(length)
	for _, x := range row {
		to = append(to, x.times(factor))
	}
	return to, factor
}

// featureBack returns the gradient of a row of Q or K of a linear problem, given that of its
// features.
func (r *reference) featureBack(row, by []number) []number {
	to, l := make([]number, len(row)), r.p.Linear
	y, factor := r.normed(row)
	for i, x := range y {
		to[i] = by[i].times(r.featureSlope(x))
	}
	if l.Norm == attn.NoNorm {
		return to
	}
	along := dot(y, to)
	for i, x := range y {
		if l.Norm == attn.NormSum || factor.x < 1/l.NormEps { // else the length is a constant
			to[i] = to[i].minus(x.times(along))
		}
		to[i] = to[i].times(factor)
	}
	return to
}

// features applies norm and feature map to a row of Q or K of a linear problem.
func (r *reference) features(row []number) []number {
	row, _ = r.normed(row)
	to := make([]number, len(row))
	for i, x := range row {
		switch one := (number{x: 1, size: 1}); {
		case r.p.Linear.Feature == attn.Identity:
			to[i] = x
		case x.x > 0:
			to[i] = x.plus(one)
		case r.p.Linear.Feature == attn.EluPlusOne:
			e := math.Exp(x.x)
			to[i] = number{e, e * (x.err + 4*rounding), e}
		default:
			to[i] = one
		}
	}
	return to
}

// featureSlope returns the derivative of the feature map.
func (r *reference) featureSlope(x number) number {
	switch {
	case r.p.Linear.Feature == attn.Identity || x.x > 0:
		return number{x: 1, size: 1}
	case r.p.Linear.Feature == attn.EluPlusOne:
		e := math.Exp(x.x)
		return number{e, e * (x.err + 4*rounding), e}
	}
	return number{}
}

// linearRow computes one query of one head of a linear problem.
func (r *reference) linearRow(m *keyHead, i, h int) {
	p := r.p
	batch, row := r.place(m.b, i)
	qh := h * p.HeadsQ / r.outHeads()
	raw := numbersOf(&r.a.Q, batch, row, qh)
	q := r.features(raw)
	var seen []int
	var w []number
	var sum total
	for j := range m.k {
		if r.visible(m.b, i, h, j) {
			seen, w = append(seen, j), append(w, dot(q, m.k[j]))
			sum.add(w[len(w)-1])
		}
	}
	normed := func(x number) number { return x.times(rounded(r.scale())) }
	if !p.Linear.Unnormalised {
		by := sum.number().plus(rounded(p.Linear.Eps))
		normed = func(x number) number { return x.over(by) }
	}
	out := make([]number, p.DimV)
	for d := range out {
		var t total
		for n, j := range seen {
			t.add(w[n].times(m.v[j][d]))
		}
		if len(seen) > 0 {
			out[d] = normed(t.number())
		}
	}
	copy(r.out.row(batch, row, h), out)
	if r.g == nil {
		return
	}
	dOut := incoming(&r.g.Out, batch, row, h, p.DimV)
	var common number // the change of the output by all weights
	if !p.Linear.Unnormalised {
		common = dot(dOut, out)
	}
	dQ := make([]total, p.Dim)
	for n, j := range seen {
		keyBatch, keyRow := r.keyPlace(m.b, j)
		for d, y := range dOut {
			r.dV.add(keyBatch, keyRow, m.vh, d, normed(w[n]).times(y))
		}
		dw := normed(dot(dOut, m.v[j]).minus(common))
		for d, y := range m.k[j] {
			dQ[d].add(dw.times(y))
			m.dK[j][d].add(dw.times(q[d]))
		}
	}
	for d, x := range r.featureBack(raw, numbers(dQ)) {
		r.dQ.add(batch, row, qh, d, x)
	}
}
