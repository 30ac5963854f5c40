package tile

import (
	"math"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
	"attnlab/kernels/scalar"
)

// loader is the scratch of a tile's way in and out.
type loader struct {
	rows []float32 // [Lanes][dim of Q]: queries that are not float32 or have to be turned, nil if there are none
	raw  []float32 // [dim of Q][Lanes]: queries as they are, where relative positions want them and Qt holds others
	bent []float32 // [dim of Q][Lanes]: queries before the metric
	outs []float32 // [Lanes][d_v]: outputs that are not float32

	cells asm.Cells // queries on their way in
}

// loaderSizes are those of rows, raw, bent and outs, in floats.
func loaderSizes(p *attn.Problem, ops *asm.Ops) (rows, raw, bent, outs int) {
	n := ops.Lanes * p.QDim()
	rope, metric := p.Score.Rope != attn.NoRope, p.Score.Terms&attn.TermMetric != 0
	if rope || p.Q != attn.F32 {
		rows = n
	}
	if p.Score.Terms&attn.TermRelative != 0 && (rope || metric) {
		raw = n
	}
	if metric {
		bent = n
	}
	if p.Out != attn.F32 {
		outs = ops.Lanes * p.DimV
	}
	return rows, raw, bent, outs
}

func loaderFloats(p *attn.Problem, ops *asm.Ops) int {
	rows, raw, bent, outs := loaderSizes(p, ops)
	return rows + raw + bent + outs
}

func newLoader(p *attn.Problem, ops *asm.Ops) loader {
	rows, raw, bent, outs := loaderSizes(p, ops)
	var l loader
	for _, o := range []struct {
		to *[]float32
		n  int
	}{{&l.rows, rows}, {&l.raw, raw}, {&l.bent, bent}, {&l.outs, outs}} {
		if o.n > 0 {
			*o.to = make([]float32, o.n)
		}
	}
	return l
}

// rawQueries are the queries in lanes as they came.
func (l *loader) rawQueries(t *Tile) []float32 {
	if l.raw != nil {
		return l.raw
	}
	return t.Qt
}

// loadQueries fills Qt with the queries as they meet the keys.
func (t *Tile) loadQueries() {
	l, p, d := &t.load, t.p, t.p.QDim()
	batch, first := t.a.QRow(p, t.b, t.i)
	rows := asm.Rows{Data: l.rows, Stride: d}
	switch {
	case t.heads > 1:
		rows = t.mixed(d)
		t.collect(rows, d)
	case l.rows == nil:
		rows = operand.Rows(&t.a.Q, batch, first, t.h)
	default:
		l.cells = operand.Cells(&t.a.Q, batch, first, t.h)
		t.ops.Widen(l.rows, &l.cells, t.rows, d)
	}
	if l.raw != nil {
		t.intoLanes(l.raw, rows, d)
	}
	if p.Score.Rope != attn.NoRope {
		pos := t.a.Pos(p, t.b)
		for lane := range t.rows {
			_, i := t.Query(lane)
			operand.Rotate(t.ops, p, t.a, rows.Row(lane, d), t.b, pos+i)
		}
	}
	if p.Score.Terms&attn.TermMetric == 0 {
		t.queriesIntoLanes(t.Qt, rows, t.lanesToLoad())
		return
	}
	t.queriesIntoLanes(l.bent, rows, t.Width)
	m, g := &t.part, &t.a.Terms.Metric
	*m = asm.Panel{Lanes: t.Lanes, Width: t.Width, N: d, C: p.Dim, Fresh: true, P: l.bent, V: operand.Rows(g, 0, 0, t.h%g.H), O: t.Qt}
	t.ops.Mix(m)
}

// lanesToLoad is how many lanes of Qt must be written: all in use, unless those without a query are 0 already, from the tile before.
func (t *Tile) lanesToLoad() int {
	switch {
	case t.filled <= t.rows:
		t.filled = t.rows
		return t.rows
	case t.filled <= t.Width:
		t.filled = t.rows
	}
	return t.Width
}

// queriesIntoLanes multiplies them by the scores' factor on their way, if that is to be. Lanes without a query become 0.
func (t *Tile) queriesIntoLanes(tile []float32, rows asm.Rows, lanes int) {
	m := t.moving(tile, rows, t.p.QDim())
	m.Width, m.Factor = lanes, 1
	if t.Scaled {
		m.Factor = t.Factor
	}
	t.ops.Load(m)
}

// intoLanes brings in rows.
func (t *Tile) intoLanes(tile []float32, rows asm.Rows, d int) {
	t.moving(tile, rows, d).Factor = 1
	t.ops.Load(&t.move)
}

// moving makes move that of rows of d columns. It is written in place, since what has just been written in parts is slow to copy.
func (t *Tile) moving(tile []float32, rows asm.Rows, d int) *asm.Move {
	m := &t.move
	m.Lanes, m.Width, m.Rows, m.D, m.Tile, m.Outside = t.Lanes, t.Width, t.rows, d, tile, rows
	return m
}

// storeOut writes the rows of O, each by its scale, and says whether they are finite.
func (t *Tile) storeOut() bool {
	batch, first := t.a.QRow(t.p, t.b, t.i)
	rows := asm.Rows{Data: t.load.outs, Stride: t.C}
	switch {
	case t.heads > 1:
		rows = t.mixed(t.C)
	case t.load.outs == nil:
		rows = operand.Rows(&t.a.Out, batch, first, t.h)
	}
	t.moving(t.O, rows, t.C).Scale = t.scale
	finite := t.ops.Store(&t.move)
	switch {
	case t.heads > 1:
		t.spread(rows)
	case t.load.outs != nil:
		out := operand.Cells(&t.a.Out, batch, first, t.h)
		for lane := range t.rows {
			t.ops.Narrow(out.Half[lane*out.Stride:][:t.C], t.load.out(t, lane), out.Type)
		}
	}
	return finite
}

// out is the row that storeOut has made of a lane.
func (l *loader) out(t *Tile, lane int) []float32 {
	if t.heads > 1 {
		rows := t.mixed(t.C)
		return rows.Row(lane, t.C)
	}
	if l.outs != nil {
		return l.outs[lane*t.C:][:t.C]
	}
	batch, row := t.a.QRow(t.p, t.b, t.i+lane)
	return t.a.Out.Row(batch, row, t.h)
}

// Outside writes the scores and weights that the call asks for of keys that the tile does not see at all.
func (t *Tile) Outside() {
	for _, o := range [...]struct {
		to     *attn.Tensor
		hidden float32
	}{{&t.a.Stats.Scores, -inf}, {&t.a.Stats.Weights, 0}} {
		if o.to.Data == nil {
			continue
		}
		from, to := 0, 0 // what blocks will write
		if t.lo < t.hi {
			from, to = t.First(t.ops.Group()), t.hi
		}
		for lane := range t.rows {
			batch, at := t.a.QRow(t.p, t.b, t.i+lane)
			row := o.to.Row(batch, at, t.h)
			fill(row[:from], o.hidden)
			fill(row[to:], o.hidden)
		}
	}
}

// StoreScores writes the block's scores, if the call asks for them.
func (t *Tile) StoreScores() {
	if t.a.Stats.Scores.Data != nil {
		fill(t.scale, float32(1/t.edits.Beta))
		t.storePairs(&t.a.Stats.Scores)
		if t.p.Score.Terms&attn.TermBias != 0 {
			t.storeLowest()
		}
	}
}

// storeLowest stores the lowest score where a base-2 logarithm is finite and the score came out
// just beyond the largest float32.
func (t *Tile) storeLowest() {
	batch, first := t.a.QRow(t.p, t.b, t.i)
	for lane := range t.rows {
		row := t.a.Stats.Scores.Row(batch, first+lane, t.h)[t.Key():][:t.N]
		for j, x := range row {
			if x == -inf && t.P[j*t.Lanes+lane] > -inf {
				row[j] = t.p.Lowest()
			}
		}
	}
}

// finishWeights makes weights of the scores in base-2 logarithms that Softmax has left in their place: the loops take those far below the largest
// as 0, which is all the same to an output and not to who looks at them.
func (t *Tile) finishWeights() {
	for lane := range t.rows {
		m, l, _, keep := scalar.AddSink(t.p, t.a, t.h, float64(t.M[lane]), float64(t.L[lane]), 0)
		batch, at := t.a.QRow(t.p, t.b, t.i+lane)
		row := t.a.Stats.Weights.Row(batch, at, t.h)[t.Key():][:t.N]
		for j, z := range row {
			row[j] = 0
			if l != 0 && keep > 0 {
				row[j] = float32(math.Exp2(float64(z)-m) / l)
			}
		}
	}
}

// storePairs writes P, each lane by its scale, where a tensor has a number for each query and key.
func (t *Tile) storePairs(to *attn.Tensor) {
	batch, first := t.a.QRow(t.p, t.b, t.i)
	rows := operand.Rows(to, batch, first, t.h)
	rows.Data = rows.Data[t.Key():]
	t.moving(t.P, rows, t.N).Scale = t.scale
	t.ops.Store(&t.move)
}

// scales works out what the lanes' outputs are to be multiplied by: 0 for a lane that sees nothing. It says whether all sums are finite.
func (t *Tile) scales() bool {
	sums := t.L[:t.Width]
	finite := t.ops.Inverse(t.scale, sums)
	if t.p.Score.Terms&attn.TermSinks != 0 {
		for lane, l := range sums[:t.rows] {
			if l != 0 {
				h, _ := t.Query(lane)
				_, sum, _, keep := scalar.AddSink(t.p, t.a, h, float64(t.M[lane]), float64(l), 0)
				t.scale[lane] = float32(keep / sum)
			}
		}
	}
	return finite
}
