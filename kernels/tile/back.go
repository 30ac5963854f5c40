package tile

import (
	"math"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
	"attnlab/kernels/scalar"
)

// A Back is a tile on its way back, from the gradient of its rows to what they add to the gradients of queries, keys and values. It makes the
// weights once more, by forward's own steps: with a row's LSE for reference, they come out divided by their sum.
//
//	At, Block    as forward
//	Recall       in place of Load: the queries, the gradients of their rows, and the references
//	Renormalise  finds the references of far rows in their scores
//	Reweigh      turns the block into weights
//	Share        adds the block's share to dV, dQ and dK
//	Return       writes the rows of dQ
//
// The loops turn the panel from weights into dZ = P (dP - D), where dP = V dO^T, and D is a row's dO . O less the gradient of its LSE. dQ is summed
// in lanes, block after block; dV and dK in the caller's own rows, tile after tile. What dZ is still to be multiplied by, scale over temperature, rows
// are when they are done: those of dQ by Return, those of dK by Finish.
//
// The loops have no case for numbers that are not finite. A query whose own row, output, gradient or LSE is not finite weighs nothing in the loops, and
// Finish answers it by definition when all tiles are done. It may be the only one to see a key that is not finite: for all others, 0 times such a number
// is to be 0, so they are given zeros in its place. Other rows keep their bits.
//
// # Far rows
//
// The LSE of a row whose scores are far from 0 has lost the logarithm of the sum of its weights: at
// -1e9 its last place is 64. Such rows take reference and sum from their own scores, in one more
// walk over the keys, and the loops then multiply their weights by one over the sum. Other lanes of
// the tile are multiplied by exactly 1, and tiles without such rows have no second walk.
//
// Where loops multiply parts, values, gradients of rows and queries are multiplied by lift before they are cut, and so the panel is too large by lift², and sums
// for dV, dQ and dK by lift, its square and its cube: what a unit of tiles takes as 0 is then less than a float32 holds. Should that drive a number out of range,
// its key head is answered by definition.
type Back struct {
	*Tile
	shared *Shared
	g      *attn.Grads
	factor float64   // scale over temperature,
	lifted float64   // and what the panel is too large by, and dq
	dout   asm.Rows  // rows of dO
	dot    []float32 // [d_v][Lanes]: the same in lanes
	dq     []float32 // [dim][Lanes]: of queries as they meet the keys
	met    []float32 // [Lanes][dim]: queries as they meet the keys, where they do not lie so in Q
	unbent []float32 // [dim of Q][Lanes]: dq before the metric
	raw    []float32 // [dim of Q][Lanes]: of queries as they are, by the table of relative positions
	more   []float32 // [Lanes][dim of Q]: raw, on its way out
	lse    []float32 // [Lanes], -Inf where a row is nothing
	h, gh  []float32 // [Lanes]: entropies, and their gradients
	norm   []float32 // [Lanes]: what weights by the reference M are multiplied by, 1 but in far rows
	lnNorm []float32 // [Lanes]: its logarithm
	sunk   []float32 // [Lanes]: weight of the sink in a far row
	slope  float64   // the tile's share of the gradient of its head's slope
	parts  struct {  // where loops multiply them: of queries as they meet the keys, and of rows of dO
		queries, dout []uint16
	}

	far       bool   // some lane has a far row
	fresh     bool   // nothing is in dq yet
	keysSound bool   // the keys and values of the block are finite
	rowsSound bool   // all queries are
	unsound   []bool // lanes to be answered by definition
}

// Shared is what the tiles of a worker take turns on.
type Shared struct {
	*fallback
	p       []float32 // [block][Lanes]: the panel
	capped  []float32 // the same: what softcap has made of products
	entropy []float32 // the same: scores, and then what the gradient of the entropy adds to dZ
	bias    []float32 // [Lanes][block]: the panel as rows, for the bias
	clean   []float32 // [block or Lanes][columns]: rows without those that are not finite
}

// sharedSizes are those of p, capped, entropy, bias and clean, in floats.
func sharedSizes(p *attn.Problem, ops *asm.Ops, block int) (panel, capped, entropy, bias, clean int) {
	panel = block * ops.Lanes
	if p.Score.Softcap != 0 {
		capped = panel
	}
	if p.Want&attn.WantEntropy != 0 {
		entropy = panel
	}
	if p.Score.Terms&attn.TermBias != 0 {
		bias = panel
	}
	return panel, capped, entropy, bias, max(block, ops.Lanes) * max(p.Dim, p.DimV, p.QDim())
}

// SharedFloats is the number of float32 numbers in Shared for blocks of so many keys.
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

// backSizes are those of met, unbent, raw and more, in floats.
func backSizes(p *attn.Problem, ops *asm.Ops) (met, unbent, raw, more int) {
	n := ops.Lanes * p.QDim()
	metric := p.Score.Terms&attn.TermMetric != 0
	if metric || p.Score.Rope != attn.NoRope {
		met = ops.Lanes * p.Dim
	}
	if metric {
		unbent = n
	}
	if p.Score.Terms&attn.TermRelative != 0 {
		raw, more = n, n
	}
	return met, unbent, raw, more
}

// BackFloats is the number of float32 numbers in a Back.
func BackFloats(p *attn.Problem, ops *asm.Ops) int {
	met, unbent, raw, more := backSizes(p, ops)
	return Floats(p, ops) + ops.Lanes*(p.Dim+7) + met + unbent + raw + more
}

// NewBack allocates a tile for a worker of a plan of problem p, which must stay where it is. The worker's tiles share a stage and more.
func NewBack(p *attn.Problem, ops *asm.Ops, stage *Stage, shared *Shared) *Back {
	t := New(p, ops, stage)
	b := &Back{Tile: t, shared: shared, factor: p.Scale() / p.Temperature(), lifted: 1, dot: t.O, unsound: t.hidden}
	if stage.cuts() {
		b.lifted = lift * lift
		t.DotParts = make([]uint16, asm.QueryParts(p.DimV, ops.Lanes))
		b.parts.queries, b.parts.dout = make([]uint16, asm.LineParts(p.Dim, ops.Lanes)), make([]uint16, asm.LineParts(p.DimV, ops.Lanes))
	}
	met, unbent, raw, more := backSizes(p, ops)
	for _, o := range []struct {
		to *[]float32
		n  int
	}{
		{&b.dq, ops.Lanes * p.Dim},
		{&b.met, met},
		{&b.unbent, unbent},
		{&b.raw, raw},
		{&b.more, more},
		{&b.lse, ops.Lanes},
		{&b.h, ops.Lanes},
		{&b.gh, ops.Lanes},
		{&b.norm, ops.Lanes},
		{&b.lnNorm, ops.Lanes},
		{&b.sunk, ops.Lanes},
		{&t.Sub, ops.Lanes},
	} {
		*o.to = make([]float32, o.n)
	}
	t.P, t.Dot, t.S, t.Scaled = shared.p, b.dot, nil, false
	if len(shared.capped) > 0 {
		t.edits.capped = shared.capped
	}
	return b
}

// Recall brings in queries, gradients of their rows, and references, and empties dQ.
func (b *Back) Recall(g *attn.Grads) {
	t, p := b.Tile, b.p
	b.g, b.rowsSound, b.slope, b.far = g, true, 0, false
	fill(b.norm, 1)
	clear(b.lnNorm)
	t.Load()
	b.fresh = true
	clear(b.raw)
	if len(b.met) > 0 {
		b.store(b.met, b.Qt, p.Dim, 1)
	}
	batch, first := t.a.QRow(p, t.b, t.i)
	if g.Out.Data != nil {
		b.dout = operand.Rows(&g.Out, batch, first, t.h)
		t.intoLanes(b.dot, b.dout, p.DimV)
	} else {
		clear(b.dot)
	}
	b.shared.incoming(t.Sub[:t.rows], t.a, g, t.b, t.i, t.h)
	finite := t.ops.Finite(t.Qt)
	for lane := range t.Width {
		incoming := t.Sub[lane]
		b.lse[lane], t.M[lane], t.Sub[lane], b.h[lane], b.gh[lane], b.unsound[lane] = -inf, math.MaxFloat32, 0, 0, 0, lane >= t.rows
		if lane >= t.rows {
			continue
		}
		x := b.shared.row
		if x.At(t.a, g, t.b, t.i+lane, t.h, incoming); !x.Sound(finite) {
			b.rowsSound, b.unsound[lane] = false, true
			for c := range p.DimV {
				b.dot[c*t.Lanes+lane] = 0
			}
			continue
		}
		if x.LSE > -inf {
			b.lse[lane], t.M[lane] = x.LSE, float32(float64(x.LSE)*math.Log2E)
			if scalar.Far(float64(x.LSE)) {
				b.far, t.M[lane] = true, asm.Unset
			}
			b.h[lane], b.gh[lane] = x.Entropy, x.DEntropy
		}
		t.Sub[lane] = float32(x.Delta * b.lifted)
	}
	if b.lifted > 1 {
		b.cut()
	}
}

// queries are rows of queries as they meet the keys.
func (b *Back) queries() asm.Rows {
	if len(b.met) > 0 {
		return asm.Rows{Data: b.met, Stride: b.D}
	}
	batch, first := b.a.QRow(b.p, b.b, b.i)
	return operand.Rows(&b.a.Q, batch, first, b.Tile.h)
}

// own are rows of the tile's own queries, those that are not finite as zeros.
func (b *Back) own(rows asm.Rows, d int) asm.Rows {
	if b.rowsSound {
		return rows
	}
	return b.clean(rows, b.rows, d)
}

// store writes lanes to rows of its own, each times a factor.
func (b *Back) store(rows, lanes []float32, d int, factor float64) {
	b.storeTo(asm.Rows{Data: rows, Stride: d}, lanes, d, factor)
}

func (b *Back) storeTo(rows asm.Rows, lanes []float32, d int, factor float64) {
	t := b.Tile
	fill(t.scale, float32(factor))
	t.moving(lanes, rows, d).Scale = t.scale
	t.ops.Store(&t.move)
}

// Renormalise finds the references of far rows, and the sums of their weights over them, in a walk
// over the keys that the tile sees. It comes after Recall.
func (b *Back) Renormalise(c Cut) {
	if !b.far {
		return
	}
	t := b.Tile
	for key := t.First(c.Block); key < t.End(); key += c.Block {
		if t.Block(key, c.Block) {
			b.weights(c.Unfused)
		}
	}
	for lane, lse := range b.lse[:t.rows] {
		if !scalar.Far(float64(lse)) {
			continue
		}
		m, l, _, keep := scalar.AddSink(b.p, t.a, t.h, float64(t.M[lane]), float64(t.L[lane]), 0)
		norm := 0.0 // where base-2 logarithms hold none of the scores
		if l > 0 {
			norm = keep / l
		}
		b.norm[lane], b.lnNorm[lane] = float32(norm), float32(math.Log(norm))
		b.sunk[lane] = float32(math.Exp2(scalar.Sink(b.p, t.a, t.h)-m) / l)
	}
}

// normalise multiplies weights by one over their sum, where they are not yet divided by it.
func (b *Back) normalise(q *asm.Panel) {
	norm := b.norm[b.Width-q.Width : b.Width]
	for j := range q.N {
		for lane, x := range norm {
			q.P[j*q.Lanes+lane] *= x
		}
	}
}

// Reweigh turns the block into weights, unfused where the gradient of the entropy needs their logarithms, which the scores are.
func (b *Back) Reweigh(unfused bool) {
	b.weights(unfused)
	if t := b.Tile; b.far && t.edits.seen < t.edits.last {
		t.zeros()
		b.each(b.normalise)
	}
}

// weights is Reweigh but for what far rows are still to be multiplied by.
func (b *Back) weights(unfused bool) {
	t := b.Tile
	if !unfused && b.g.Entropy.Data == nil {
		t.Weights()
		return
	}
	t.Scores()
	if b.g.Entropy.Data != nil {
		copy(b.shared.entropy, t.P[:t.N*t.Lanes])
	}
	t.weigh(t.ops.Exp, &t.Panel)
}

// Share turns the panel from weights into dZ and adds what the block gives to dV, dQ and dK. Whether the block's keys and values are finite, the caller
// says.
func (b *Back) Share(keysSound bool) {
	t, p, g := b.Tile, b.p, b.g
	b.keysSound, t.VLines = keysSound, asm.Parts{}
	if t.edits.seen >= t.edits.last {
		return // nobody sees any of it
	}
	t.zeros()
	if !b.rowsSound || !keysSound {
		b.each(b.drop)
	}
	at, row := t.a.KRow(p, t.b, t.Edit.Key)
	if g.V.Data != nil && g.Out.Data != nil {
		b.outer(operand.Rows(&g.V, at, row, t.kv), b.dout, p.DimV, b.parts.dout, 1./lift)
	}
	b.values()
	if g.Entropy.Data != nil {
		b.disorder()
	}
	b.each(t.ops.DScore)
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
		b.outer(operand.Rows(&g.K, at, row, t.kv), b.queries(), p.Dim, b.parts.queries, 1./(lift*lift*lift))
	}
}

// values brings in the block's values.
func (b *Back) values() {
	t := b.Tile
	t.values()
	if b.keysSound {
		t.VLines = t.stage.BackValues(t.a, t.b, t.kv, t.Edit.Key, t.N)
		return
	}
	t.V = b.clean(t.V, t.N, t.C)
	t.VLines = t.stage.back.vals.other(t.stage.liftValues, t.V, t.N)
}

// each calls do for stretches of the block's rows, from row From on, with the lanes that have weights in them: those from one on.
func (b *Back) each(do func(q *asm.Panel)) {
	t, q := b.Tile, &b.part
	from, last := t.edits.seen, t.edits.last
	for lane := 0; lane < t.Width && from < last; lane += t.ops.Unit() {
		end := last
		if t.Until != nil {
			end = t.Until[lane/t.ops.Vec]
		}
		if from >= end {
			continue
		}
		*q = t.Panel
		q.From, q.N, q.Width, q.P = from, end-from, t.Width-lane, t.P[from*t.Lanes+lane:]
		q.Sub, q.Dot = t.Sub[lane:], t.Dot[min(lane, len(t.Dot)):]
		if t.C > 0 {
			q.V = t.V.From(from)
		}
		if t.VLines.Data != nil {
			q.VLines, q.DotParts = t.VLines.From(from), t.DotParts[asm.QueryParts(1, lane):]
		}
		do(q)
		from = end
	}
}

// drop makes the weights of unsound lanes 0.
func (b *Back) drop(q *asm.Panel) {
	for lane := b.Width - q.Width; lane < b.Width; lane++ {
		for j := 0; j < q.N && b.unsound[lane]; j++ {
			q.P[j*q.Lanes+lane-b.Width+q.Width] = 0
		}
	}
}

// clean copies rows without those that are not finite.
func (b *Back) clean(rows asm.Rows, n, d int) asm.Rows {
	to := asm.Rows{Data: b.shared.clean, Stride: d}
	for i := range n {
		if row := rows.Row(i, d); b.ops.Finite(row) {
			copy(to.Row(i, d), row)
		} else {
			clear(to.Row(i, d))
		}
	}
	return to
}

// outer adds the products of the panel's rows with those of the queries to rows of keys: where there are parts of these, by parts, and lower to begin with.
func (b *Back) outer(x, y asm.Rows, cols int, parts []uint16, lower float32) {
	t := b.Tile
	if cols == 0 {
		return
	}
	if parts == nil {
		y = b.own(y, cols)
	}
	b.each(func(q *asm.Panel) {
		lane := t.Width - q.Width
		q.Width, q.C, q.X, q.XStr = t.rows-lane, cols, x.Data[q.From*x.Stride:], x.Stride
		if parts == nil {
			q.Y = y.From(lane)
		} else {
			q.YParts, q.Lower = parts[asm.QueryParts(1, lane):], lower
		}
		t.ops.Outer(q)
	})
}

// mixKeys adds the block's keys, by the panel, to dQ.
func (b *Back) mixKeys() {
	t, q := b.Tile, &b.part
	*q = t.Panel
	keys, parts := t.K, asm.Parts{}
	if b.keysSound {
		parts = t.stage.BackKeys(t.a, t.b, t.kv, t.Edit.Key, t.N)
	} else {
		keys = b.clean(keys, t.N, t.D)
		parts = t.stage.back.keys.other(t.stage.turnKeys, keys, t.N)
	}
	q.C, q.O, q.Keep = t.D, b.dq, nil
	for row := t.edits.seen; row < t.edits.last; row += q.N {
		q.N = min(mixAtOnce-(t.Edit.Key+row)%t.stage.size%mixAtOnce, t.edits.last-row)
		q.P, q.Fresh = t.P[row*t.Lanes:], b.fresh
		if t.D > 0 {
			q.V, q.VParts = keys.From(row), parts.From(row)
		}
		t.ops.Mix(q)
		b.fresh = false
	}
}

// mixAtOnce is the number of keys that one Mix takes of a block, starting at multiples of it: one
// call sums over all its rows. Blocks whose vectors use different rows, by Since and Until, have
// fewer.
const mixAtOnce = 1024

// disorder works out what the gradient of the entropy H adds to dZ: -dH p (log p + H).
func (b *Back) disorder() {
	t := b.Tile
	for j := range t.N {
		row, z := t.P[j*t.Lanes:][:t.Width], b.shared.entropy[j*t.Lanes:][:t.Width]
		for lane, x := range row {
			log := float32((z[lane]-t.M[lane])*math.Ln2) + b.lnNorm[lane]
			z[lane] = 0
			if x != 0 { // else the logarithm may be anything
				z[lane] = -b.gh[lane] * x * (log + b.h[lane])
			}
		}
	}
}

// addDisorder adds it.
func (b *Back) addDisorder() {
	t := b.Tile
	for j := range t.N {
		row := t.P[j*t.Lanes:][:t.Width]
		for lane, x := range b.shared.entropy[j*t.Lanes:][:t.Width] {
			row[lane] += x
		}
	}
}

// toBias adds the panel to the gradient of the bias.
func (b *Back) toBias() {
	t, to := b.Tile, &b.g.Terms.Bias
	off, step := to.Offset(t.b, t.i, t.h)
	first, n, factor := t.edits.seen, t.edits.last-t.edits.seen, 1/t.temp/b.lifted
	data, panel := to.Data[off+(t.Edit.Key+first)*step:], t.P[first*t.Lanes:]
	if to.S == 1 { // one for all queries
		for j := range n {
			sum := 0.0
			for _, x := range panel[j*t.Lanes:][:t.rows] {
				sum += float64(x)
			}
			data[j*step] += float32(sum * factor)
		}
		return
	}
	rows := asm.Rows{Data: b.shared.bias, Stride: n}
	b.storeTo(rows, panel, n, factor)
	for lane := range t.rows {
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
	t, sum := b.Tile, 0.0
	for j := t.edits.seen; j < t.edits.last; j++ {
		apart := t.edits.pos - t.Edit.Key - j
		for lane, x := range t.P[j*t.Lanes:][:t.rows] {
			sum += float64(x) * float64(max(apart+lane, -apart-lane))
		}
	}
	b.slope -= sum / t.temp / b.lifted
}

// toRelative adds the panel to what the table of relative positions takes and gives. Along its diagonals, the panel is one of rows of the table instead
// of keys: the way of addRelative backwards.
func (b *Back) toRelative() {
	t, p := b.Tile, b.p
	table, to, clip := &t.a.Terms.Relative, &b.g.Terms.Relative, t.a.Terms.RelativeClip
	batch, row := t.a.QRow(p, t.b, t.i)
	factor := float32(b.factor / b.lifted)
	for from := t.edits.seen; from < t.edits.last; from += t.edits.step {
		n := min(t.edits.step, t.edits.last-from)
		at := func(lane, j int) int { return t.a.Relative(p, t.b, t.i+lane, t.Edit.Key+from+j) }
		first, last := at(t.rows-1, 0), at(0, n-1)
		w := t.edits.relative[:(last-first+1)*t.Lanes]
		clear(w)
		for j := range n {
			shift := at(0, j) - first
			for lane, x := range t.P[(from+j)*t.Lanes:][:t.rows] {
				r := shift - lane
				if clip > 0 {
					r = at(lane, j) - first
				}
				w[r*t.Lanes+lane] += x * factor
			}
		}
		q := &b.part
		*q = asm.Panel{Lanes: t.Lanes, Width: t.Width, N: last - first + 1, C: p.QDim(), P: w, O: b.raw, V: operand.Rows(table, 0, first, t.h%table.H)}
		t.ops.Mix(q)
		if to.Data != nil && p.QDim() > 0 {
			x, y := operand.Rows(to, 0, first, t.h%to.H), operand.Rows(&t.a.Q, batch, row, t.h)
			if !b.rowsSound {
				y = b.clean(y, t.rows, p.QDim())
			}
			q.Width, q.X, q.XStr, q.Y = t.rows, x.Data, x.Stride, y
			t.ops.Outer(q)
		}
	}
}

// uncap takes the panel through the slope of softcap, which is 1 - tanh².
func (b *Back) uncap() {
	t := b.Tile
	scale := float32(1 / t.edits.Cap)
	for j := t.edits.seen; j < t.edits.last; j++ {
		row, capped := t.P[j*t.Lanes:][:t.Width], b.shared.capped[j*t.Lanes:][:t.Width]
		for lane, x := range capped {
			if row[lane] != 0 { // else what is in capped may be anything
				x *= scale
				row[lane] *= 1 - float32(x*x)
			}
		}
	}
}

// Return writes the rows of dQ, and is false if they have come out with numbers that are not finite.
func (b *Back) Return() (sound bool) {
	t, p, to := b.Tile, b.p, &b.g.Q
	if b.fresh {
		clear(b.dq)
	}
	if to.Data == nil {
		return true
	}
	batch, first := t.a.QRow(p, t.b, t.i)
	rows := operand.Rows(to, batch, first, t.h)
	if len(b.unbent) == 0 {
		b.storeTo(rows, b.dq, p.Dim, b.factor/b.lifted)
	} else {
		q, m := &b.part, &t.a.Terms.Metric
		*q = asm.Panel{Lanes: t.Lanes, Width: t.Width, N: p.QDim(), D: p.Dim, Factor: b.factor / b.lifted, K: operand.Rows(m, 0, 0, t.h%m.H), Qt: b.dq, P: b.unbent}
		t.ops.Score(q)
		b.storeTo(rows, b.unbent, p.QDim(), 1)
	}
	if p.Score.Rope != attn.NoRope {
		pos := t.a.Pos(p, t.b) + t.i
		for lane := range t.rows {
			operand.RotateBack(t.ops, p, t.a, to.Row(batch, first+lane, t.h), t.b, pos+lane, b.shared.sines)
		}
	}
	if len(b.more) > 0 {
		b.store(b.more, b.raw, p.QDim(), 1)
		for lane := range t.rows {
			row := to.Row(batch, first+lane, t.h)
			for c, x := range b.more[lane*len(row):][:len(row)] {
				row[c] += x
			}
		}
	}
	return operand.Finite(t.ops, to, batch, first, t.h, t.rows)
}

// Sound is whether no query is left to Finish.
func (b *Back) Sound() bool { return b.rowsSound }

// Settle adds the tile's share to the gradients of terms that all tiles of a head share. Tiles settle in order, after Return.
func (b *Back) Settle() {
	t, p, to := b.Tile, b.p, &b.g.Terms
	if to.Slopes != nil {
		to.Slopes[t.h] += float32(b.slope)
	}
	if to.Sinks != nil {
		sum, sink := 0.0, float64(t.a.Sink(p, t.h))
		for lane, lse := range b.lse[:t.rows] {
			log := sink - float64(lse)
			w := math.Exp(log)
			if scalar.Far(float64(lse)) {
				w = float64(b.sunk[lane])
				log = math.Log(w)
			}
			if lse > -inf && w > 0 {
				sum -= w * (float64(t.Sub[lane])/b.lifted + float64(b.gh[lane])*(log+float64(b.h[lane])))
			}
		}
		to.Sinks[t.h] += float32(sum)
	}
	if m := &to.Metric; m.Data != nil && p.Dim > 0 {
		b.store(b.met, b.dq, p.Dim, b.factor/b.lifted)
		q, x := &b.part, operand.Rows(m, 0, 0, t.h%m.H)
		*q = asm.Panel{Lanes: t.Lanes, Width: t.rows, N: p.QDim(), C: p.Dim, P: t.load.bent, X: x.Data, XStr: x.Stride, Y: asm.Rows{Data: b.met, Stride: p.Dim}}
		t.ops.Outer(q)
	}
}
