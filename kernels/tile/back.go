package tile

import (
	"math"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
	"attnlab/kernels/scalar"
)

// A Back is a tile of the backward pass, from the gradient of its rows to what they add to the
// gradients of queries, keys and values. It makes the weights once more, by forward's own steps:
// with a row's LSE for reference, they come out divided by their sum.
//
//	At, Block    as forward
//	Recall       in place of Load: the queries, the gradients of their rows, and the references
//	Renormalise  finds the references of far rows in their scores
//	Reweigh      turns the block into weights
//	Share        adds the block's share to dV, dQ and dK
//	Return       writes the rows of dQ
//
// The loops turn the panel from weights into dZ = P (dP - D), where dP = V dO^T, and D is a row's
// dO . O less the gradient of its LSE. dQ is summed in lanes, block after block; dV and dK in the
// caller's own rows, tile after tile. What dZ is still to be multiplied by, scale over temperature,
// rows are when they are done: those of dQ by Return, those of dK by Finish.
//
// The loops have no case for numbers that are not finite. A query whose own row, output, gradient
// or LSE is not finite weighs nothing in the loops, and Finish answers it by definition when all
// tiles are done. It may be the only one to see a key that is not finite: for all others, 0 times
// such a number is to be 0, so they are given zeros in its place. Other rows keep their bits.
//
// # Far rows
//
// The LSE of a row whose scores are far from 0 has lost the logarithm of the sum of its weights: at
// -1e9 its last place is 64. Such rows take reference and sum from their own scores, in one more
// walk over the keys, and the loops then multiply their weights by one over the sum. Other lanes of
// the tile are multiplied by exactly 1, and tiles without such rows have no second walk.
//
// # Packed operands
//
// Packed gradients and values are lifted by a power of two, and so is dZ, which what reads the
// panel takes off. Should that drive a number out of range, its key head is answered by definition.
type Back struct {
	*Tile
	shared *Shared
	g      *attn.Grads
	factor float64 // scale over temperature
	lift   int     // dZ is too large by this power of two

	marks   marks
	dout    lines         // gradients of the rows
	dot     asm.QueryTile // the same in lanes
	values  asm.KeyBlock  // the block's, in the place of keys
	queries lines         // queries as they meet the keys
	met     []float32     // [Lanes][dim]: these, where they are not so in Q
	dscore  asm.DScore
	outer   asm.Outer
	dq      asm.Mix // O is [dim][Lanes]: of queries as they meet the keys
	unbend  asm.Scores
	table   tableShare
	slope   float64 // the tile's share of the gradient of its head's slope
	sound   sound
}

// marks are what is known of the rows of a Back's lanes.
type marks struct {
	lse  []float32 // -Inf where a row is nothing
	less []float64 // dO . O less the gradient of the LSE
	sub  []float32 // the same, lifted as dZ is
	h    []float32 // entropies
	gh   []float32 // and their gradients
	// Of far rows. Others have a norm of 1.
	far    bool      // some lane has one
	norm   []float32 // what weights by the reference M are multiplied by
	lnNorm []float32 // its logarithm
	sunk   []float32 // weight of the sink
}

// marksFloats is the number of float32 numbers in a lane's marks.
const marksFloats = 9

func newMarks(lanes int) marks {
	f := func() []float32 { return make([]float32, lanes) }
	return marks{lse: f(), less: make([]float64, lanes), sub: f(), h: f(), gh: f(), norm: f(), lnNorm: f(), sunk: f()}
}

// lines are rows of which each belongs to a lane, for Outer.
type lines struct {
	rows  asm.Rows
	block asm.LineBlock
}

// tableShare is a Back's part in the table of relative positions.
type tableShare struct {
	mix  asm.Mix   // O is [dim of Q][Lanes]: gradients of queries as they are, by the table
	outs []float32 // [Lanes][dim of Q]: the same, on its way out
}

// sound says which numbers of a Back are finite.
type sound struct {
	keys bool // keys and values of the block
	rows bool // all queries
}

// Shared is what the tiles of a worker use one after the other.
type Shared struct {
	*fallback
	p       []float32 // [block][Lanes]: the panel
	capped  []float32 // [block][Lanes]: what softcap has made of products
	entropy []float32 // [block][Lanes]: scores, and then what the gradient of the entropy adds to dZ
	bias    []float32 // [Lanes][block]: the panel as rows, for the bias
	clean   []float32 // [block or Lanes][columns]: rows without those that are not finite
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

// NewShared allocates what the tiles of a worker share.
func NewShared(p *attn.Problem, ops *asm.Ops, block int) *Shared {
	panel, capped, entropy, bias, clean := sharedSizes(p, ops, block)
	f := func(n int) []float32 { return make([]float32, n) }
	return &Shared{newFallback(p, ops), f(panel), f(capped), f(entropy), f(bias), f(clean)}
}

// backSizes returns the sizes of met, unbend.P, table.mix.O and table.outs, in floats.
func backSizes(p *attn.Problem, ops *asm.Ops) (met, unbent, raw, outs int) {
	n := ops.Shape.Lanes * p.QDim()
	metric := p.Score.Terms&attn.TermMetric != 0
	if metric || p.Score.Rope != attn.NoRope {
		met = ops.Shape.Lanes * p.Dim
	}
	if metric {
		unbent = n
	}
	if p.Score.Terms&attn.TermRelative != 0 {
		raw, outs = n, n
	}
	return met, unbent, raw, outs
}

// BackFloats returns the number of float32 numbers in a Back.
func BackFloats(p *attn.Problem, ops *asm.Ops, pack asm.Pack) int {
	lanes := ops.Shape.Lanes
	met, unbent, raw, outs := backSizes(p, ops)
	packed := pack.Size(asm.Queries, lanes, p.DimV) + pack.Size(asm.Lines, lanes, p.Dim) + pack.Size(asm.Lines, lanes, p.DimV)
	return sharedFloats(p, ops, pack) + lanes*(p.Dim+p.DimV+marksFloats) + packed + met + unbent + raw + outs
}

// NewBack allocates a tile for a worker of a plan of problem p, which must stay where it is. The
// worker's tiles share a stage and more.
func NewBack(p *attn.Problem, ops *asm.Ops, stage *Stage, shared *Shared) *Back {
	t, lanes, pack := newTile(p, ops, stage), ops.Shape.Lanes, &stage.Pack
	b := &Back{Tile: t, shared: shared, factor: p.Scale() / p.Temperature(), marks: newMarks(lanes)}
	t.SetPanel(shared.p)
	t.sums.S, t.flash.S = nil, nil
	if len(shared.capped) > 0 {
		t.edits.capped = shared.capped
	}
	met, unbent, raw, outs := backSizes(p, ops)
	b.met, b.table.outs = make([]float32, met), make([]float32, outs)
	b.dout.block, b.queries.block = pack.NewLines(lanes, p.DimV), pack.NewLines(lanes, p.Dim)
	b.dot = pack.NewQueries(lanes, p.DimV)
	b.dscore.Lanes, b.dscore.C = lanes, p.DimV
	b.outer.Lanes = lanes
	b.dq.Lanes, b.dq.C, b.dq.O = lanes, p.Dim, make([]float32, lanes*p.Dim)
	b.unbend.Lanes, b.unbend.N, b.unbend.D, b.unbend.P = lanes, p.QDim(), p.Dim, make([]float32, unbent)
	b.unbend.Queries = asm.QueryLanes(b.dq.O)
	b.table.mix.Lanes, b.table.mix.C, b.table.mix.O = lanes, p.QDim(), make([]float32, raw)
	return b
}

// Recall loads queries, gradients of their rows, and references, and empties dQ.
func (b *Back) Recall(g *attn.Grads) {
	t, p, m := b.Tile, b.p, &b.marks
	lanes, l, dot := t.flash.Lanes, &b.place, b.dot.Lanes()
	b.g, b.sound.rows, b.slope, m.far = g, true, 0, false
	fill(m.norm, 1)
	clear(m.lnNorm)
	t.Load()
	b.dq.Fresh, b.dq.Width, b.unbend.Width, b.table.mix.Width = true, l.width, l.width, l.width
	clear(b.table.mix.O)
	batch, first := t.a.QRow(p, l.b, l.first)
	if len(b.met) > 0 {
		b.queries.rows = asm.Rows{Data: b.met, Stride: p.Dim}
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
	b.shared.incoming(m.sub[:l.rows], t.a, g, l.b, l.first, l.head)
	finite := t.ops.Vector.Finite(t.flash.Queries.Lanes())
	for lane := range l.width {
		incoming := m.sub[lane]
		m.lse[lane], t.sums.M[lane], m.less[lane], m.h[lane], m.gh[lane], t.sums.hidden[lane] = -inf, math.MaxFloat32, 0, 0, 0, lane >= l.rows
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
			m.h[lane], m.gh[lane] = x.Entropy, x.DEntropy
		}
		m.less[lane] = x.Delta
	}
	b.liftSub()
	t.stage.Pack.Queries(&b.dot, l.width, p.DimV, 1, asm.Form{Lift: true})
	if g.Out.Data != nil {
		b.pack(&b.dout, p.DimV)
	}
	if g.K.Data != nil {
		b.pack(&b.queries, p.Dim)
	}
}

// liftSub makes sub what less is, lifted.
func (b *Back) liftSub() {
	for lane, x := range b.marks.less {
		b.marks.sub[lane] = float32(math.Ldexp(x, b.lift))
	}
}

// lowered returns a factor of what is made of dZ, for numbers that are lifted as dZ is.
func (b *Back) lowered(factor float64) float64 { return math.Ldexp(factor, -b.lift) }

// pack packs lines of d columns, those that are not finite as zeros.
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

// Renormalise finds the references of far rows, and the sums of their weights over them, in a walk
// over the keys that the tile sees. It comes after Recall.
func (b *Back) Renormalise(c *Blocking) {
	m, l := &b.marks, &b.place
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
		norm := 0.0 // where base-2 logarithms hold none of the scores
		if sum > 0 {
			norm = keep / sum
		}
		m.norm[lane], m.lnNorm[lane] = float32(norm), float32(math.Log(norm))
		m.sunk[lane] = float32(math.Exp2(scalar.Sink(b.p, b.a, l.head)-ref) / sum)
	}
}

// Reweigh turns the block into weights, unfused where the gradient of the entropy needs their
// logarithms, which the scores are.
func (b *Back) Reweigh(unfused bool) {
	b.weights(unfused)
	if b.marks.far && !b.edits.used.empty() {
		b.zeros()
		b.each(b.normalise)
	}
}

// weights is Reweigh but for what far rows are still to be multiplied by.
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

// each calls do for stretches of the block's rows, with the first of the lanes that have weights in
// them.
func (b *Back) each(do func(rows span, lane int)) {
	for rows := b.edits.used; !rows.empty(); {
		lane, end := b.stairs.stretch(rows.lo)
		end = min(end, rows.hi)
		do(span{rows.lo, end}, lane)
		rows.lo = end
	}
}

// normalise multiplies weights by one over their sum, where they are not yet divided by it.
func (b *Back) normalise(rows span, lane int) {
	norm := b.marks.norm[lane:b.place.width]
	for j := rows.lo; j < rows.hi; j++ {
		row := b.flash.P[j*b.flash.Lanes+lane:]
		for i, x := range norm {
			row[i] *= x
		}
	}
}

// drop makes the weights of unsound lanes 0.
func (b *Back) drop(rows span, first int) {
	for lane := first; lane < b.place.width; lane++ {
		for j := rows.lo; j < rows.hi && b.sums.hidden[lane]; j++ {
			b.flash.P[j*b.flash.Lanes+lane] = 0
		}
	}
}

// Share turns the panel from weights into dZ and adds what the block gives to dV, dQ and dK.
// keysSound says whether the block's keys and values are finite.
func (b *Back) Share(keysSound bool) {
	p, g, l := b.p, b.g, &b.place
	b.sound.keys = keysSound
	if b.edits.used.empty() {
		return
	}
	b.zeros()
	if !b.sound.rows || !keysSound {
		b.each(b.drop)
	}
	at, row := b.a.KRow(p, l.b, b.flash.Key)
	if g.V.Data != nil && g.Out.Data != nil {
		b.addOuter(operand.Rows(&g.V, at, row, l.kv), &b.dout, p.DimV, 0)
	}
	b.bringValues()
	if g.Entropy.Data != nil {
		b.disorder()
	}
	b.each(b.scoreGradients)
	if g.Entropy.Data != nil {
		b.addDisorder()
	}
	if g.Terms.Bias.Data != nil {
		b.toBias()
	}
	if g.Terms.Slopes != nil {
		b.toSlope()
	}
	if p.Score.Softcap != 0 {
		b.uncap()
	}
	if p.Score.Terms&attn.TermRelative != 0 {
		b.toRelative()
	}
	if g.Q.Data != nil || g.Terms.Metric.Data != nil {
		b.mixKeys()
	}
	if g.K.Data != nil {
		b.addOuter(operand.Rows(&g.K, at, row, l.kv), &b.queries, p.Dim, b.lift)
	}
}

// bringValues makes the stage's values those of DScore.
func (b *Back) bringValues() {
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
		b.liftSub()
	}
}

// scoreGradients turns weights into dZ.
func (b *Back) scoreGradients(rows span, lane int) {
	d := &b.dscore
	d.N, d.Width, d.P = rows.hi-rows.lo, b.place.width-lane, b.flash.P[rows.lo*d.Lanes+lane:]
	d.Dot, d.Values, d.Sub = b.dot.From(lane), b.values.From(rows.lo), b.marks.sub[lane:]
	b.ops.Back.DScore(d)
}

// clean copies rows, those that are not finite as zeros.
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
	if !b.sound.rows { // what they alias has been used for other rows
		b.pack(y, cols)
	}
	b.each(func(rows span, lane int) {
		o := &b.outer
		o.N, o.Width, o.P = rows.hi-rows.lo, b.place.rows-lane, b.flash.P[rows.lo*o.Lanes+lane:]
		o.Y = y.block.From(lane)
		b.addProduct(x.From(rows.lo), cols, lift)
	})
}

// addProduct adds what outer's weights and lines give to rows of cols columns.
func (b *Back) addProduct(x asm.Rows, cols, lift int) {
	o := &b.outer
	o.C, o.X, o.XStride, o.Lift = cols, x.Data, x.Stride, lift
	b.ops.Back.Outer(o)
}

// mixKeys adds the block's keys, by the panel, to dQ.
func (b *Back) mixKeys() {
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

// mixAtOnce is the number of keys that one Mix takes of a block, starting at multiples of it: one
// call sums over all its rows. Blocks whose vectors use different rows, by Since and Until, have
// fewer.
const mixAtOnce = 1024

// disorder computes what the gradient of the entropy H adds to dZ: -dH p (log p + H).
func (b *Back) disorder() {
	lanes, m := b.flash.Lanes, &b.marks
	for j := range b.flash.N {
		row, z := b.flash.P[j*lanes:][:b.place.width], b.shared.entropy[j*lanes:][:b.place.width]
		for lane, x := range row {
			log := float32((z[lane]-b.sums.M[lane])*math.Ln2) + m.lnNorm[lane]
			z[lane] = 0
			if x != 0 { // else the logarithm may be anything
				z[lane] = -m.gh[lane] * x * (log + m.h[lane])
			}
		}
	}
}

// addDisorder adds it.
func (b *Back) addDisorder() {
	lanes := b.flash.Lanes
	for j := range b.flash.N {
		row := b.flash.P[j*lanes:][:b.place.width]
		for lane, x := range b.shared.entropy[j*lanes:][:b.place.width] {
			row[lane] += x
		}
	}
}

// toBias adds the panel to the gradient of the bias.
func (b *Back) toBias() {
	l, lanes, used, to := &b.place, b.flash.Lanes, b.edits.used, &b.g.Terms.Bias
	off, step := to.Offset(l.b, l.first, l.head)
	n, factor := used.hi-used.lo, b.lowered(1/b.p.Temperature())
	data, panel := to.Data[off+(b.flash.Key+used.lo)*step:], b.flash.P[used.lo*lanes:]
	if to.S == 1 { // one for all queries
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
		if step == 0 { // one for all keys
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

// toSlope adds the panel, times distances, to the gradient of the slope.
func (b *Back) toSlope() {
	sum, used := 0.0, b.edits.used
	for j := used.lo; j < used.hi; j++ {
		apart := b.edits.pos - b.flash.Key - j
		for lane, x := range b.flash.P[j*b.flash.Lanes:][:b.place.rows] {
			sum += float64(x) * float64(max(apart+lane, -apart-lane))
		}
	}
	b.slope -= b.lowered(sum / b.p.Temperature())
}

// toRelative adds the panel to the gradients of the table of relative positions, and to those that
// queries have by it. Along its diagonals, the panel is one of rows of the table instead of keys:
// the reverse of addRelative.
func (b *Back) toRelative() {
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

// uncap multiplies the panel by the slope of softcap, which is 1 - tanh².
func (b *Back) uncap() {
	lanes, scale := b.flash.Lanes, float32(1/b.edits.Cap)
	for j := b.edits.used.lo; j < b.edits.used.hi; j++ {
		row, capped := b.flash.P[j*lanes:][:b.place.width], b.shared.capped[j*lanes:][:b.place.width]
		for lane, x := range capped {
			if row[lane] != 0 { // else what is in capped may be anything
				x *= scale
				row[lane] *= 1 - float32(x*x)
			}
		}
	}
}

// Return writes the rows of dQ, and reports whether they are finite.
func (b *Back) Return() (sound bool) {
	p, l, to := b.p, &b.place, &b.g.Q
	if b.dq.Fresh {
		clear(b.dq.O)
	}
	if to.Data == nil {
		return true
	}
	batch, first := b.a.QRow(p, l.b, l.first)
	rows := operand.Rows(to, batch, first, l.head)
	if len(b.unbend.P) == 0 {
		b.storeTo(rows, b.dq.O, p.Dim, b.lowered(b.factor))
	} else {
		m := &b.a.Terms.Metric
		b.unbend.Factor, b.unbend.Keys = b.lowered(b.factor), asm.KeyRows(operand.Rows(m, 0, 0, l.head%m.H))
		b.ops.Panel.Score(&b.unbend)
		b.storeTo(rows, b.unbend.P, p.QDim(), 1)
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

// Sound reports whether no query is left to Finish.
func (b *Back) Sound() bool { return b.sound.rows }

// Settle adds the tile's share to the gradients of terms that all tiles of a head share. Tiles
// settle in order, after Return.
func (b *Back) Settle() {
	p, l, m, to := b.p, &b.place, &b.marks, &b.g.Terms
	if to.Slopes != nil {
		to.Slopes[l.head] += float32(b.slope)
	}
	if to.Sinks != nil {
		sum, sink := 0.0, float64(b.a.Sink(p, l.head))
		for lane, lse := range m.lse[:l.rows] {
			log := sink - float64(lse)
			w := math.Exp(log)
			if scalar.Far(float64(lse)) {
				w = float64(m.sunk[lane])
				log = math.Log(w)
			}
			if lse > -inf && w > 0 {
				sum -= w * (b.lowered(float64(m.sub[lane])) + float64(m.gh[lane])*(log+float64(m.h[lane])))
			}
		}
		to.Sinks[l.head] += float32(sum)
	}
	if x := &to.Metric; x.Data != nil && p.Dim > 0 {
		rows, o := asm.Rows{Data: b.met, Stride: p.Dim}, &b.outer
		b.storeTo(rows, b.dq.O, p.Dim, b.lowered(b.factor))
		o.N, o.Width, o.P, o.Y = p.QDim(), l.rows, b.moves.metric.P, asm.LineRows(rows)
		b.addProduct(operand.Rows(x, 0, 0, l.head%x.H), p.Dim, 0)
	}
}
