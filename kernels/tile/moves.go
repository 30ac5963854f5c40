package tile

import (
	"math"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
	"attnlab/kernels/scalar"
)

// moves load a tile's rows into lanes, and store lanes as rows.
type moves struct {
	move   asm.Move
	factor float64   // multiplies queries as they are loaded
	filled int       // lanes of the queries from this one on are 0
	cells  asm.Cells // queries in place
	metric asm.Mix   // P: [dim of Q][Lanes], queries before the metric
	scale  []float32 // [Lanes]
	outs   []float32 // [Lanes][d_v]: outputs that are not float32
	// [Lanes][dim of Q]: queries that are not float32 or have to be rotated; nil if there are none.
	rows []float32
	// [dim of Q][Lanes]: queries before rotation and metric, for relative positions; nil if these
	// are the tile's own.
	raw []float32
}

// movesSizes returns the sizes of rows, raw, metric.P and outs, in floats.
func movesSizes(p *attn.Problem, lanes int) (rows, raw, metric, outs int) {
	n := lanes * p.QDim()
	rotates, bends := p.Score.Rope != attn.NoRope, p.Score.Terms&attn.TermMetric != 0
	if rotates || p.Q != attn.F32 {
		rows = n
	}
	if p.Score.Terms&attn.TermRelative != 0 && (rotates || bends) {
		raw = n
	}
	if bends {
		metric = n
	}
	if p.Out != attn.F32 {
		outs = lanes * p.DimV
	}
	return rows, raw, metric, outs
}

// movesFloats returns the number of float32 numbers in moves.
func movesFloats(p *attn.Problem, lanes int) int {
	rows, raw, metric, outs := movesSizes(p, lanes)
	return rows + raw + metric + outs
}

// newMoves allocates the moves of a problem's tiles.
func newMoves(p *attn.Problem, lanes int) moves {
	rows, raw, metric, outs := movesSizes(p, lanes)
	m := moves{factor: 1, scale: make([]float32, lanes)}
	m.move.Lanes = lanes
	m.metric.Lanes, m.metric.N, m.metric.C, m.metric.Fresh = lanes, p.QDim(), p.Dim, true
	for _, o := range []struct {
		to *[]float32
		n  int
	}{{&m.rows, rows}, {&m.raw, raw}, {&m.metric.P, metric}, {&m.outs, outs}} {
		if o.n > 0 {
			*o.to = make([]float32, o.n)
		}
	}
	return m
}

// rawQueries returns the queries in lanes, before rotation and metric.
func (t *Tile) rawQueries() []float32 {
	if t.moves.raw != nil {
		return t.moves.raw
	}
	return t.flash.Queries.Lanes()
}

// loadQueries loads the queries, rotated and multiplied by the metric.
func (t *Tile) loadQueries() {
	m, p, l, d := &t.moves, t.p, &t.place, t.p.QDim()
	batch, first := t.a.QRow(p, l.b, l.first)
	rows := asm.Rows{Data: m.rows, Stride: d}
	switch {
	case l.heads > 1:
		rows = t.joined(d)
		t.copyQueries(rows, d)
	case m.rows == nil:
		rows = operand.Rows(&t.a.Q, batch, first, l.head)
	default:
		m.cells = operand.Cells(&t.a.Q, batch, first, l.head)
		t.ops.Vector.Widen(m.rows, &m.cells, l.rows, d)
	}
	if m.raw != nil {
		t.intoLanes(m.raw, rows, d)
	}
	if p.Score.Rope != attn.NoRope {
		pos := t.a.Pos(p, l.b)
		for lane := range l.rows {
			_, i := t.Query(lane)
			operand.Rotate(t.ops, p, t.a, rows.Row(lane, d), l.b, pos+i)
		}
	}
	to := t.flash.Queries.Lanes()
	if p.Score.Terms&attn.TermMetric == 0 {
		t.queriesIntoLanes(to, rows, m.lanesToLoad(l.rows, l.width))
		return
	}
	t.queriesIntoLanes(m.metric.P, rows, l.width)
	g, mix := &t.a.Terms.Metric, &m.metric
	mix.Width, mix.Values, mix.O = l.width, asm.ValueRows(operand.Rows(g, 0, 0, l.head%g.H)), to
	t.ops.Panel.Mix(mix)
}

// lanesToLoad returns the number of lanes to write: all width lanes in use, unless the lanes after
// the first rows, which have no query, are still 0 from the tile before.
func (m *moves) lanesToLoad(rows, width int) int {
	switch {
	case m.filled <= rows:
		m.filled = rows
		return rows
	case m.filled <= width:
		m.filled = rows
	}
	return width
}

// queriesIntoLanes loads queries, times factor, into lanes lanes. Lanes without a query become 0.
func (t *Tile) queriesIntoLanes(tile []float32, rows asm.Rows, lanes int) {
	m := t.move(tile, rows, t.p.QDim())
	m.Width, m.Factor = lanes, t.moves.factor
	t.ops.Vector.Load(m)
}

// intoLanes loads rows of d columns into lanes.
func (t *Tile) intoLanes(tile []float32, rows asm.Rows, d int) {
	m := t.move(tile, rows, d)
	m.Factor = 1
	t.ops.Vector.Load(m)
}

// store stores lanes as rows of d columns, each times its scale, and reports whether they are
// finite.
func (t *Tile) store(rows asm.Rows, tile []float32, d int) bool {
	m := t.move(tile, rows, d)
	m.Scale = t.moves.scale
	return t.ops.Vector.Store(m)
}

// move returns the call that moves rows of d columns.
func (t *Tile) move(tile []float32, rows asm.Rows, d int) *asm.Move {
	m := &t.moves.move
	m.Width, m.Rows, m.D, m.Tile, m.Outside = t.place.width, t.place.rows, d, tile, rows
	return m
}

// storeOut stores the rows of the output, each times its scale, and reports whether they are
// finite.
func (t *Tile) storeOut() bool {
	l, d := &t.place, t.p.DimV
	batch, first := t.a.QRow(t.p, l.b, l.first)
	rows := asm.Rows{Data: t.moves.outs, Stride: d}
	switch {
	case l.heads > 1:
		rows = t.joined(d)
	case t.moves.outs == nil:
		rows = operand.Rows(&t.a.Out, batch, first, l.head)
	}
	finite := t.store(rows, t.mix.O, d)
	switch {
	case l.heads > 1:
		t.copyOut(rows)
	case t.moves.outs != nil:
		out := operand.Cells(&t.a.Out, batch, first, l.head)
		for lane := range l.rows {
			t.ops.Vector.Narrow(out.Half[lane*out.Stride:][:d], t.out(lane), out.Type)
		}
	}
	return finite
}

// out returns the row that storeOut has written for a lane.
func (t *Tile) out(lane int) []float32 {
	l, d := &t.place, t.p.DimV
	if l.heads > 1 {
		rows := t.joined(d)
		return rows.Row(lane, d)
	}
	if t.moves.outs != nil {
		return t.moves.outs[lane*d:][:d]
	}
	batch, row := t.a.QRow(t.p, l.b, l.first+lane)
	return t.a.Out.Row(batch, row, l.head)
}

// scales computes the factors of the lanes' outputs: 0 for a lane that sees no key. It reports
// whether all sums are finite.
func (t *Tile) scales() bool {
	sums, scale := t.sums.L[:t.place.width], t.moves.scale
	finite := t.ops.Vector.Inverse(scale, sums)
	if t.p.Score.Terms&attn.TermSinks != 0 {
		for lane, l := range sums[:t.place.rows] {
			if l != 0 {
				h, _ := t.Query(lane)
				_, sum, _, keep := scalar.AddSink(t.p, t.a, h, float64(t.sums.M[lane]), float64(l), 0)
				scale[lane] = float32(keep / sum)
			}
		}
	}
	return finite
}

// pairs returns the row of a lane in a tensor that has a number for each query and key.
func (t *Tile) pairs(x *attn.Tensor, lane int) []float32 {
	batch, row := t.a.QRow(t.p, t.place.b, t.place.first+lane)
	return x.Row(batch, row, t.place.head)
}

// WriteUnseen writes the scores and weights, as far as the call wants them, of the keys that no
// block of the tile holds.
func (t *Tile) WriteUnseen() {
	for _, o := range [...]struct {
		to     *attn.Tensor
		hidden float32
	}{{&t.a.Stats.Scores, -inf}, {&t.a.Stats.Weights, 0}} {
		if o.to.Data == nil {
			continue
		}
		seen := span{} // keys that blocks will write
		if !t.place.keys.empty() {
			seen = span{t.place.start(t.ops.Shape.Group), t.place.keys.hi}
		}
		for lane := range t.place.rows {
			row := t.pairs(o.to, lane)
			fill(row[:seen.lo], o.hidden)
			fill(row[seen.hi:], o.hidden)
		}
	}
}

// StoreScores writes the block's scores, if the call wants them.
func (t *Tile) StoreScores() {
	if t.a.Stats.Scores.Data != nil {
		fill(t.moves.scale, float32(1/t.edits.Beta))
		t.storePairs(&t.a.Stats.Scores)
		if t.p.Score.Terms&attn.TermBias != 0 {
			t.storeLowest()
		}
	}
}

// storeLowest stores the lowest score where the base-2 logarithm is finite and the score came out
// just beyond the largest float32.
func (t *Tile) storeLowest() {
	f := &t.flash
	for lane := range t.place.rows {
		row := t.pairs(&t.a.Stats.Scores, lane)[f.Key:][:f.N]
		for j, x := range row {
			if x == -inf && f.P[j*f.Lanes+lane] > -inf {
				row[j] = t.p.Lowest()
			}
		}
	}
}

// finishWeights computes weights from the scores that Softmax has stored in their place as base-2
// logarithms. The loops round weights far below the largest to 0; an output does not show that, but
// the weights do.
func (t *Tile) finishWeights() {
	for lane := range t.place.rows {
		m, l, _ := t.sums.numbers(lane)
		m, l, _, keep := scalar.AddSink(t.p, t.a, t.place.head, m, l, 0)
		row := t.pairs(&t.a.Stats.Weights, lane)[t.flash.Key:][:t.flash.N]
		for j, z := range row {
			row[j] = 0
			if l != 0 && keep > 0 {
				row[j] = float32(math.Exp2(float64(z)-m) / l)
			}
		}
	}
}

// storePairs writes the panel, each lane times its scale, to a tensor that has a number for each
// query and key.
func (t *Tile) storePairs(to *attn.Tensor) {
	batch, first := t.a.QRow(t.p, t.place.b, t.place.first)
	rows := operand.Rows(to, batch, first, t.place.head)
	rows.Data = rows.Data[t.flash.Key:]
	t.store(rows, t.flash.P, t.flash.N)
}
