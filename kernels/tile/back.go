package tile

import (
	"math"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
	"attnlab/kernels/scalar"
)

// A Back is a tile of the backward pass: from the gradients of its rows it computes what they add
// to the gradients of queries, keys and values. It computes the weights a second time, by the steps
// of the forward pass. With a row's LSE as its reference, the weights are already divided by their
// sum.
//
//	At, Block            as in the forward pass
//	LoadRows             in place of Load: the queries, the gradients of their rows, the references
//	FindReferences       computes the references of far rows from their scores
//	RecomputeWeights     computes the block's weights
//	AddGradients         adds the block's contributions to dV, dQ and dK
//	StoreQueryGradients  writes the rows of dQ
//
// The loops turn the panel from weights into dZ = P (dP - D), where dP = V dO^T, and D is a row's
// dO . O less the gradient of its LSE. dQ is summed in lanes, block after block; dV and dK are
// summed in the caller's own rows, tile after tile. Finished rows are multiplied by scale over
// temperature: dQ by StoreQueryGradients, dK by the fallback's finish.
//
// The loops have no case for numbers that are not finite. A query whose own row, output, gradient
// or LSE is not finite has weights of 0 in the loops. The fallback computes its gradients by
// definition when all tiles are done. Keys and values that are not finite are read as zeros, since
// for a query that does not see them, 0 times such a number must be 0. Other rows keep their bits.
//
// # Far rows
//
// The LSE of a row whose scores are far from 0 has lost the logarithm of the sum of its weights: at
// -1e9 its last place is 64. Such rows take reference and sum from their own scores, in one more
// walk over the keys. The loops then multiply their weights by one over the sum. Other lanes of the
// tile are multiplied by exactly 1, and tiles without far rows have no second walk.
//
// # Packed operands
//
// Packed gradients and values are lifted by a power of two, and so is dZ. Each step that reads the
// panel divides by it. If lifting drives a number out of range, the gradients of its key head are
// computed by definition.
type Back struct {
	*Tile
	shared *Shared
	g      *attn.Grads
	factor float64 // scale over temperature
	lift   int     // dZ is too large by this power of two

	perLane  perLane
	dout     lines         // gradients of the rows
	dot      asm.QueryTile // gradients of the rows, in lanes
	values   asm.KeyBlock  // values of the block, in the place of keys
	queries  lines         // queries after rotation and metric
	prepared []float32     // [Lanes][dim]: rows of queries; nil: they are in Q
	dscore   asm.DScore
	outer    asm.Outer
	dq       asm.Mix    // O is [dim][Lanes]: gradients of queries after rotation and metric
	metric   asm.Scores // multiplies dq by the metric
	table    tableShare
	slope    float64 // the tile's share of the gradient of its head's slope
	sound    sound
}

// perLane holds numbers of the row in each lane of a Back.
type perLane struct {
	lse      []float32 // -Inf for rows that add nothing to the gradients
	delta    []float64 // dO . O less the gradient of the LSE
	lifted   []float32 // delta, lifted as dZ is
	entropy  []float32
	dEntropy []float32 // gradients of the entropies

	far        bool      // some lane has a far row
	norm       []float32 // factor of weights with reference M; 1 if the row is not far
	logNorm    []float32 // natural logarithm of norm
	sinkWeight []float32 // weight of the sink, of far rows
}

// perLaneFloats is the number of float32 numbers of a lane in perLane.
const perLaneFloats = 9

func newPerLane(lanes int) perLane {
	f := func() []float32 { return make([]float32, lanes) }
	return perLane{
		lse: f(), delta: make([]float64, lanes), lifted: f(), entropy: f(), dEntropy: f(),
		norm: f(), logNorm: f(), sinkWeight: f(),
	}
}

// lines are rows of lanes for Outer, as they are stored and packed.
type lines struct {
	rows  asm.Rows
	block asm.LineBlock
}

// A tableShare holds the parts of a Back for the table of relative positions.
type tableShare struct {
	mix  asm.Mix   // O is [dim of Q][Lanes]: gradients of queries before rotation and metric
	outs []float32 // [Lanes][dim of Q]: these gradients as rows
}

// sound records which numbers of a Back are finite.
type sound struct {
	keys bool // keys and values of the block
	rows bool // all queries
}

// Shared is memory that the tiles of a worker use one after another.
type Shared struct {
	*fallback
	p       []float32 // [block][Lanes]: the panel
	capped  []float32 // [block][Lanes]: products after softcap
	entropy []float32 // [block][Lanes]: scores, then the entropy's contributions to dZ
	bias    []float32 // [Lanes][block]: the panel as rows, for the bias
	clean   []float32 // [block or Lanes][columns]: rows, with zeros for rows that are not finite
}

// sharedSizes returns the sizes of p, capped, entropy, bias and clean, in floats.
func sharedSizes(p *attn.Problem, ops *asm.Ops, block int) (panel, capped, entropy, bias, clean int) {
	panel = block * ops.Shape.Lanes
	if p.Score.Softcap != 0 {
		capped = panel
	}
	if p.Want&attn.WantEntropy != 0 {
		entropy = panel
	}
	if p.Score.Terms&attn.TermBias != 0 {
		bias = panel
	}
	return panel, capped, entropy, bias, max(block, ops.Shape.Lanes) * max(p.Dim, p.DimV, p.QDim())
}

// SharedFloats returns the number of float32 numbers in Shared for blocks of block keys.
func SharedFloats(p *attn.Problem, ops *asm.Ops, block int) int {
	panel, capped, entropy, bias, clean := sharedSizes(p, ops, block)
	return fallbackFloats(p) + panel + capped + entropy + bias + clean
}

// NewShared allocates the memory that the tiles of a worker share.
func NewShared(p *attn.Problem, ops *asm.Ops, block int) *Shared {
	panel, capped, entropy, bias, clean := sharedSizes(p, ops, block)
	f := func(n int) []float32 { return make([]float32, n) }
	return &Shared{newFallback(p, ops), f(panel), f(capped), f(entropy), f(bias), f(clean)}
}

// backSizes returns the sizes of prepared, metric.P, table.mix.O and table.outs, in floats.
func backSizes(p *attn.Problem, ops *asm.Ops) (prepared, metric, raw, outs int) {
	n := ops.Shape.Lanes * p.QDim()
	hasMetric := p.Score.Terms&attn.TermMetric != 0
	if hasMetric || p.Score.Rope != attn.NoRope {
		prepared = ops.Shape.Lanes * p.Dim
	}
	if hasMetric {
		metric = n
	}
	if p.Score.Terms&attn.TermRelative != 0 {
		raw, outs = n, n
	}
	return prepared, metric, raw, outs
}

// BackFloats returns the number of float32 numbers in a Back.
func BackFloats(p *attn.Problem, ops *asm.Ops, pack asm.Pack) int {
	lanes := ops.Shape.Lanes
	prepared, metric, raw, outs := backSizes(p, ops)
	packed := pack.Size(asm.Queries, lanes, p.DimV) + pack.Size(asm.Lines, lanes, p.Dim) + pack.Size(asm.Lines, lanes, p.DimV)
	return sharedFloats(p, ops, pack) + lanes*(p.Dim+p.DimV+perLaneFloats) + packed + prepared + metric + raw + outs
}

// NewBack allocates a tile for a worker of a plan of problem p, which must not be moved or copied
// afterwards. The worker's tiles share stage and shared.
func NewBack(p *attn.Problem, ops *asm.Ops, stage *Stage, shared *Shared) *Back {
	t, lanes, pack := newTile(p, ops, stage), ops.Shape.Lanes, &stage.Pack
	b := &Back{Tile: t, shared: shared, factor: p.Scale() / p.Temperature(), perLane: newPerLane(lanes)}
	t.SetPanel(shared.p)
	t.sums.S, t.flash.S = nil, nil
	if len(shared.capped) > 0 {
		t.edits.capped = shared.capped
	}
	prepared, metric, raw, outs := backSizes(p, ops)
	b.prepared, b.table.outs = make([]float32, prepared), make([]float32, outs)
	b.dout.block, b.queries.block = pack.NewLines(lanes, p.DimV), pack.NewLines(lanes, p.Dim)
	b.dot = pack.NewQueries(lanes, p.DimV)
	b.dscore.Lanes, b.dscore.C = lanes, p.DimV
	b.outer.Lanes = lanes
	b.dq.Lanes, b.dq.C, b.dq.O = lanes, p.Dim, make([]float32, lanes*p.Dim)
	b.metric.Lanes, b.metric.N, b.metric.D, b.metric.P = lanes, p.QDim(), p.Dim, make([]float32, metric)
	b.metric.Queries = asm.QueryLanes(b.dq.O)
	b.table.mix.Lanes, b.table.mix.C, b.table.mix.O = lanes, p.QDim(), make([]float32, raw)
	return b
}

// LoadRows loads queries, gradients of their rows, and references, and sets dQ to 0.
func (b *Back) LoadRows(g *attn.Grads) {
	t, p, m := b.Tile, b.p, &b.perLane
	lanes, l, dot := t.flash.Lanes, &b.place, b.dot.Lanes()
	b.g, b.sound.rows, b.slope, m.far = g, true, 0, false
	fill(m.norm, 1)
	clear(m.logNorm)
	t.Load()
	b.dq.Fresh, b.dq.Width, b.metric.Width, b.table.mix.Width = true, l.width, l.width, l.width
	clear(b.table.mix.O)
	batch, first := t.a.QRow(p, l.b, l.first)
	if len(b.prepared) > 0 {
		b.queries.rows = asm.Rows{Data: b.prepared, Stride: p.Dim}
		b.storeTo(b.queries.rows, t.flash.Queries.Lanes(), p.Dim, 1)
	} else {
		b.queries.rows = operand.Rows(&t.a.Q, batch, first, l.head)
	}
	if g.Out.Data != nil {
		b.dout.rows = operand.Rows(&g.Out, batch, first, l.head)
		t.intoLanes(dot, b.dout.rows, p.DimV)
	} else {
		clear(dot)
	}
	b.shared.incoming(m.lifted[:l.rows], t.a, g, l.b, l.first, l.head)
	finite := t.ops.Vector.Finite(t.flash.Queries.Lanes())
	for lane := range l.width {
		incoming := m.lifted[lane]
		m.lse[lane], t.sums.M[lane], m.delta[lane], m.entropy[lane], m.dEntropy[lane], t.sums.hidden[lane] = -inf, math.MaxFloat32, 0, 0, 0, lane >= l.rows
		if lane >= l.rows {
			continue
		}
		x := b.shared.row
		if x.At(t.a, g, l.b, l.first+lane, l.head, incoming); !x.Sound(finite) {
			b.sound.rows, t.sums.hidden[lane] = false, true
			for c := range p.DimV {
				dot[c*lanes+lane] = 0
			}
			continue
		}
		if x.LSE > -inf {
			m.lse[lane], t.sums.M[lane] = x.LSE, float32(float64(x.LSE)*math.Log2E)
			if scalar.Far(float64(x.LSE)) {
				m.far, t.sums.M[lane] = true, asm.Unset
			}
			m.entropy[lane], m.dEntropy[lane] = x.Entropy, x.DEntropy
		}
		m.delta[lane] = x.Delta
	}
	b.liftDelta()
	t.stage.Pack.Queries(&b.dot, l.width, p.DimV, 1, asm.Form{Lift: true})
	if g.Out.Data != nil {
		b.pack(&b.dout, p.DimV)
	}
	if g.K.Data != nil {
		b.pack(&b.queries, p.Dim)
	}
}

// liftDelta computes lifted from delta.
func (b *Back) liftDelta() {
	for lane, x := range b.perLane.delta {
		b.perLane.lifted[lane] = float32(math.Ldexp(x, b.lift))
	}
}

// lowered returns a factor of lifted numbers that also divides by their lift.
func (b *Back) lowered(factor float64) float64 { return math.Ldexp(factor, -b.lift) }

// pack packs lines of d columns, with zeros for rows that are not finite.
func (b *Back) pack(x *lines, d int) {
	rows := x.rows
	if !b.sound.rows {
		rows = b.clean(rows, b.place.rows, d)
	}
	b.stage.Pack.Lines(&x.block, rows, b.place.rows, d, asm.Form{Lift: true})
}

// storeTo stores lanes as rows, each times a factor.
func (b *Back) storeTo(rows asm.Rows, lanes []float32, d int, factor float64) {
	fill(b.moves.scale, float32(factor))
	b.store(rows, lanes, d)
}

// FindReferences computes the references of far rows, and the sums of their weights, in a walk over
// the keys that the tile sees. Call it after LoadRows.
func (b *Back) FindReferences(c *Blocking) {
	m, l := &b.perLane, &b.place
	if !m.far {
		return
	}
	for key := b.First(c.Block); key < b.End(); key += c.Block {
		if b.Block(key, c.Block) {
			b.weights(c.Unfused)
		}
	}
	for lane, lse := range m.lse[:l.rows] {
		if !scalar.Far(float64(lse)) {
			continue
		}
		ref, sum, _ := b.sums.numbers(lane)
		ref, sum, _, keep := scalar.AddSink(b.p, b.a, l.head, ref, sum, 0)
		norm := 0.0 // if all scores are too far for base-2 logarithms
		if sum > 0 {
			norm = keep / sum
		}
		m.norm[lane], m.logNorm[lane] = float32(norm), float32(math.Log(norm))
		m.sinkWeight[lane] = float32(math.Exp2(scalar.Sink(b.p, b.a, l.head)-ref) / sum)
	}
}

// RecomputeWeights computes the block's weights. They are unfused where the gradient of the entropy
// needs the scores too.
func (b *Back) RecomputeWeights(unfused bool) {
	b.weights(unfused)
	if b.perLane.far && !b.edits.used.empty() {
		b.zeros()
		b.eachStretch(b.normalise)
	}
}

// weights is RecomputeWeights without the normalisation of far rows.
func (b *Back) weights(unfused bool) {
	if !unfused && b.g.Entropy.Data == nil {
		b.Weights()
		return
	}
	b.Scores()
	if b.g.Entropy.Data != nil {
		copy(b.shared.entropy, b.flash.P[:b.flash.N*b.flash.Lanes])
	}
	b.exp()
}

// eachStretch calls do for stretches of the block's used rows, with the first lane that has weights
// in them.
func (b *Back) eachStretch(do func(rows span, lane int)) {
	for rows := b.edits.used; !rows.empty(); {
		lane, end := b.stairs.stretch(rows.lo)
		end = min(end, rows.hi)
		do(span{rows.lo, end}, lane)
		rows.lo = end
	}
}

// normalise multiplies weights by norm, which is one over their sum for far rows.
func (b *Back) normalise(rows span, lane int) {
	norm := b.perLane.norm[lane:b.place.width]
	for j := rows.lo; j < rows.hi; j++ {
		row := b.flash.P[j*b.flash.Lanes+lane:]
		for i, x := range norm {
			row[i] *= x
		}
	}
}

// dropUnsound makes the weights of unsound lanes 0.
func (b *Back) dropUnsound(rows span, first int) {
	for lane := first; lane < b.place.width; lane++ {
		for j := rows.lo; j < rows.hi && b.sums.hidden[lane]; j++ {
			b.flash.P[j*b.flash.Lanes+lane] = 0
		}
	}
}

// AddGradients turns the panel from weights into dZ and adds the block's contributions to dV, dQ
// and dK. Set keysSound if the block's keys and values are finite.
func (b *Back) AddGradients(keysSound bool) {
	p, g, l := b.p, b.g, &b.place
	b.sound.keys = keysSound
	if b.edits.used.empty() {
		return
	}
	b.zeros()
	if !b.sound.rows || !keysSound {
		b.eachStretch(b.dropUnsound)
	}
	at, row := b.a.KRow(p, l.b, b.flash.Key)
	if g.V.Data != nil && g.Out.Data != nil {
		b.addOuter(operand.Rows(&g.V, at, row, l.kv), &b.dout, p.DimV, 0)
	}
	b.stageValues()
	if g.Entropy.Data != nil {
		b.entropyGradients()
	}
	b.eachStretch(b.scoreGradients)
	if g.Entropy.Data != nil {
		b.addEntropyGradients()
	}
	if g.Terms.Bias.Data != nil {
		b.addToBias()
	}
	if g.Terms.Slopes != nil {
		b.addToSlope()
	}
	if p.Score.Softcap != 0 {
		b.backThroughCap()
	}
	if p.Score.Terms&attn.TermRelative != 0 {
		b.addToRelative()
	}
	if g.Q.Data != nil || g.Terms.Metric.Data != nil {
		b.addToQueries()
	}
	if g.K.Data != nil {
		b.addOuter(operand.Rows(&g.K, at, row, l.kv), &b.queries, p.Dim, b.lift)
	}
}

// stageValues sets the values of DScore to the stage's block.
func (b *Back) stageValues() {
	l, key, n := &b.place, b.flash.Key, b.flash.N
	if b.sound.keys {
		b.values = b.stage.ValuesAsKeys(b.a, l.b, l.kv, key, n)
	} else {
		rows := b.clean(b.stage.valueRows(b.a, l.b, l.kv, key, n), n, b.p.DimV)
		b.values = b.stage.cleanValuesAsKeys(rows, n)
	}
	b.dscore.Dot, b.dscore.Values = b.dot, b.values
	if lift := b.dscore.Lift(); lift != b.lift {
		b.lift = lift
		b.liftDelta()
	}
}

// scoreGradients turns weights into dZ.
func (b *Back) scoreGradients(rows span, lane int) {
	d := &b.dscore
	d.N, d.Width, d.P = rows.hi-rows.lo, b.place.width-lane, b.flash.P[rows.lo*d.Lanes+lane:]
	d.Dot, d.Values, d.Sub = b.dot.From(lane), b.values.From(rows.lo), b.perLane.lifted[lane:]
	b.ops.Back.DScore(d)
}

// clean copies rows, with zeros for rows that are not finite.
func (b *Back) clean(rows asm.Rows, n, d int) asm.Rows {
	to := asm.Rows{Data: b.shared.clean, Stride: d}
	for i := range n {
		if row := rows.Row(i, d); b.ops.Vector.Finite(row) {
			copy(to.Row(i, d), row)
		} else {
			clear(to.Row(i, d))
		}
	}
	return to
}

// addOuter adds the products of the panel, which is lifted by a power of two, with lines of the
// queries to rows of keys.
func (b *Back) addOuter(x asm.Rows, y *lines, cols, lift int) {
	if cols == 0 {
		return
	}
	if !b.sound.rows { // clean, which the lines alias, has been used for other rows
		b.pack(y, cols)
	}
	b.eachStretch(func(rows span, lane int) {
		o := &b.outer
		o.N, o.Width, o.P = rows.hi-rows.lo, b.place.rows-lane, b.flash.P[rows.lo*o.Lanes+lane:]
		o.Y = y.block.From(lane)
		b.addProduct(x.From(rows.lo), cols, lift)
	})
}

// addProduct adds the product of outer's weights and lines to rows of cols columns.
func (b *Back) addProduct(x asm.Rows, cols, lift int) {
	o := &b.outer
	o.C, o.X, o.XStride, o.Lift = cols, x.Data, x.Stride, lift
	b.ops.Back.Outer(o)
}

// addToQueries adds the product of the panel and the block's keys to dQ.
func (b *Back) addToQueries() {
	l, key, n := &b.place, b.flash.Key, b.flash.N
	var keys asm.ValueBlock
	if b.sound.keys {
		keys = b.stage.KeysAsValues(b.a, l.b, l.kv, key, n)
	} else {
		rows := b.clean(b.stage.keyRows(b.a, l.b, l.kv, key, n), n, b.p.Dim)
		keys = b.stage.cleanKeysAsValues(rows, n)
	}
	m := &b.dq
	m.Since, m.Until = b.mix.Since, b.mix.Until
	for row := b.edits.used.lo; row < b.edits.used.hi; row += m.N {
		m.N = min(mixAtOnce-(key+row)%b.stage.Block%mixAtOnce, b.edits.used.hi-row)
		m.P, m.Values = b.flash.P[row*m.Lanes:], keys.From(row)
		b.ops.Panel.Mix(m)
		m.Fresh = false
	}
}

// mixAtOnce is the number of keys of a block that one Mix takes; it starts at multiples of
// mixAtOnce. One call sums over all its rows, so longer sums would lose precision. Blocks whose
// vectors use different rows, by Since and Until, have fewer keys.
const mixAtOnce = 1024

// entropyGradients computes the contributions of the entropy H to dZ: -dH p (log p + H).
func (b *Back) entropyGradients() {
	lanes, m := b.flash.Lanes, &b.perLane
	for j := range b.flash.N {
		row, z := b.flash.P[j*lanes:][:b.place.width], b.shared.entropy[j*lanes:][:b.place.width]
		for lane, x := range row {
			log := float32((z[lane]-b.sums.M[lane])*math.Ln2) + m.logNorm[lane]
			z[lane] = 0
			if x != 0 { // else the logarithm is meaningless
				z[lane] = -m.dEntropy[lane] * x * (log + m.entropy[lane])
			}
		}
	}
}

// addEntropyGradients adds these contributions to the panel.
func (b *Back) addEntropyGradients() {
	lanes := b.flash.Lanes
	for j := range b.flash.N {
		row := b.flash.P[j*lanes:][:b.place.width]
		for lane, x := range b.shared.entropy[j*lanes:][:b.place.width] {
			row[lane] += x
		}
	}
}

// addToBias adds the panel to the gradient of the bias.
func (b *Back) addToBias() {
	l, lanes, used, to := &b.place, b.flash.Lanes, b.edits.used, &b.g.Terms.Bias
	off, step := to.Offset(l.b, l.first, l.head)
	n, factor := used.hi-used.lo, b.lowered(1/b.p.Temperature())
	data, panel := to.Data[off+(b.flash.Key+used.lo)*step:], b.flash.P[used.lo*lanes:]
	if to.S == 1 { // all queries share one row
		for j := range n {
			sum := 0.0
			for _, x := range panel[j*lanes:][:l.rows] {
				sum += float64(x)
			}
			data[j*step] += float32(sum * factor)
		}
		return
	}
	rows := asm.Rows{Data: b.shared.bias, Stride: n}
	b.storeTo(rows, panel, n, factor)
	for lane := range l.rows {
		row := rows.Row(lane, n)
		if step == 0 { // all keys share one number
			sum := 0.0
			for _, x := range row {
				sum += float64(x)
			}
			data[lane*to.SS] += float32(sum)
			continue
		}
		sums := data[lane*to.SS:][:n]
		for j, x := range row {
			sums[j] += x
		}
	}
}

// addToSlope adds the panel, times distances, to the gradient of the slope.
func (b *Back) addToSlope() {
	sum, used := 0.0, b.edits.used
	for j := used.lo; j < used.hi; j++ {
		apart := b.edits.pos - b.flash.Key - j
		for lane, x := range b.flash.P[j*b.flash.Lanes:][:b.place.rows] {
			sum += float64(x) * float64(max(apart+lane, -apart-lane))
		}
	}
	b.slope -= b.lowered(sum / b.p.Temperature())
}

// addToRelative adds the panel to the gradient of the table of relative positions, and to the
// gradients that queries get from the table. Summed along its diagonals, the panel has a row for
// each row of the table: the reverse of addRelative.
func (b *Back) addToRelative() {
	p, l, lanes := b.p, &b.place, b.flash.Lanes
	table, to := &b.a.Terms.Relative, &b.g.Terms.Relative
	factor := float32(b.lowered(b.factor))
	for from := b.edits.used.lo; from < b.edits.used.hi; from += b.edits.step {
		n := min(b.edits.step, b.edits.used.hi-from)
		d := diagonals{b.a, p, l.b, l.first, b.flash.Key + from, n}
		first, last := d.rows(l.rows)
		w := b.edits.relative.P[:(last-first+1)*lanes]
		clear(w)
		for j := range n {
			shift := d.at(0, j) - first
			for lane, x := range b.flash.P[(from+j)*lanes:][:l.rows] {
				r := shift - lane
				if b.a.Terms.RelativeClip > 0 {
					r = d.at(lane, j) - first
				}
				w[r*lanes+lane] += x * factor
			}
		}
		m := &b.table.mix
		m.N, m.P, m.Values = last-first+1, w, asm.ValueRows(operand.Rows(table, 0, first, l.head%table.H))
		b.ops.Panel.Mix(m)
		if to.Data != nil && p.QDim() > 0 {
			batch, row := b.a.QRow(p, l.b, l.first)
			y := operand.Rows(&b.a.Q, batch, row, l.head)
			if !b.sound.rows {
				y = b.clean(y, l.rows, p.QDim())
			}
			o := &b.outer
			o.N, o.Width, o.P, o.Y = m.N, l.rows, w, asm.LineRows(y)
			b.addProduct(operand.Rows(to, 0, first, l.head%to.H), p.QDim(), 0)
		}
	}
}

// backThroughCap multiplies the panel by the derivative of softcap, which is 1 - tanh².
func (b *Back) backThroughCap() {
	lanes, scale := b.flash.Lanes, float32(1/b.edits.Cap)
	for j := b.edits.used.lo; j < b.edits.used.hi; j++ {
		row, capped := b.flash.P[j*lanes:][:b.place.width], b.shared.capped[j*lanes:][:b.place.width]
		for lane, x := range capped {
			if row[lane] != 0 { // else capped may be unset
				x *= scale
				row[lane] *= 1 - float32(x*x)
			}
		}
	}
}

// StoreQueryGradients writes the rows of dQ, and reports whether they are finite.
func (b *Back) StoreQueryGradients() (sound bool) {
	p, l, to := b.p, &b.place, &b.g.Q
	if b.dq.Fresh {
		clear(b.dq.O)
	}
	if to.Data == nil {
		return true
	}
	batch, first := b.a.QRow(p, l.b, l.first)
	rows := operand.Rows(to, batch, first, l.head)
	if len(b.metric.P) == 0 {
		b.storeTo(rows, b.dq.O, p.Dim, b.lowered(b.factor))
	} else {
		m := &b.a.Terms.Metric
		b.metric.Factor, b.metric.Keys = b.lowered(b.factor), asm.KeyRows(operand.Rows(m, 0, 0, l.head%m.H))
		b.ops.Panel.Score(&b.metric)
		b.storeTo(rows, b.metric.P, p.QDim(), 1)
	}
	if p.Score.Rope != attn.NoRope {
		pos := b.a.Pos(p, l.b) + l.first
		for lane := range l.rows {
			operand.RotateBack(b.ops, p, b.a, to.Row(batch, first+lane, l.head), l.b, pos+lane, b.shared.sines)
		}
	}
	if len(b.table.outs) > 0 {
		b.storeTo(asm.Rows{Data: b.table.outs, Stride: p.QDim()}, b.table.mix.O, p.QDim(), 1)
		for lane := range l.rows {
			row := to.Row(batch, first+lane, l.head)
			for c, x := range b.table.outs[lane*len(row):][:len(row)] {
				row[c] += x
			}
		}
	}
	return operand.Finite(b.ops, to, batch, first, l.head, l.rows)
}

// Sound reports whether no query is left to the fallback.
func (b *Back) Sound() bool { return b.sound.rows }

// AddTermGradients adds the tile's share to the gradients of score terms that all tiles of a head
// share. Call it for tiles in order, after StoreQueryGradients.
func (b *Back) AddTermGradients() {
	p, l, m, to := b.p, &b.place, &b.perLane, &b.g.Terms
	if to.Slopes != nil {
		to.Slopes[l.head] += float32(b.slope)
	}
	if to.Sinks != nil {
		sum, sink := 0.0, float64(b.a.Sink(p, l.head))
		for lane, lse := range m.lse[:l.rows] {
			log := sink - float64(lse)
			w := math.Exp(log)
			if scalar.Far(float64(lse)) {
				w = float64(m.sinkWeight[lane])
				log = math.Log(w)
			}
			if lse > -inf && w > 0 {
				sum -= w * (b.lowered(float64(m.lifted[lane])) + float64(m.dEntropy[lane])*(log+float64(m.entropy[lane])))
			}
		}
		to.Sinks[l.head] += float32(sum)
	}
	if x := &to.Metric; x.Data != nil && p.Dim > 0 {
		rows, o := asm.Rows{Data: b.prepared, Stride: p.Dim}, &b.outer
		b.storeTo(rows, b.dq.O, p.Dim, b.lowered(b.factor))
		o.N, o.Width, o.P, o.Y = p.QDim(), l.rows, b.moves.metric.P, asm.LineRows(rows)
		b.addProduct(operand.Rows(x, 0, 0, l.head%x.H), p.Dim, 0)
	}
}
