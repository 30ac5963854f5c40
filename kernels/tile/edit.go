package tile

import (
	"math"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
)

// edits compute a block's scores and change them before they become weights. They do so for step
// rows at a time, so that these stay in the first-level cache:
//
//	Score      K Qt, times Factor
//	relative   the product with the table's rows, shifted by one row for each lane
//	Cap        softcap
//	Add        bias, which is loaded into lanes as queries are
//	Slope      ALiBi
//	Hide       band and bitmap, as a bit a score
//	largest    max and argmax
//
// Rows of a block that no query sees are skipped, and so is Hide where every query sees every row.
type edits struct {
	Factors
	any      bool // some block may need an edit
	terms    bool // some block may need an edit other than Hide for a bitmap
	step     int  // rows at a time, a multiple of 32
	used     span // rows of the block that any query sees
	pos      int  // position of the tile's first query
	slope    float64
	scores   asm.Scores
	edit     asm.Edit
	top      asm.Softmax
	was      []float32 // [Lanes]: largest scores before a step
	relative asm.Scores
	bias     elements
	bits     bits
	capped   []float32 // [block][Lanes]: results of Cap in used rows; nil: not wanted
}

// elements say where a tensor that has a number for each query and key has a tile's numbers.
type elements struct {
	at   int // element of lane 0 and key 0
	step int // distance from one key to the next; 0: all keys share one element
}

// Factors are the numbers that the edits multiply by. The factor that turns scores into base-2
// logarithms is part of one of them, the last one in use, so that it rounds once. A Slope after an
// Add is multiplied separately.
type Factors struct {
	Product   float64 // factor of Score and Dot
	Cap       float64 // Edit.Scale of Cap; 0 if there is no softcap
	Add, Tilt float64 // Edit.Scale of Add and of Slope
	Beta      float64 // finished scores are the caller's scores times Beta
}

// FactorsOf returns the factors of a problem.
func FactorsOf(p *attn.Problem) Factors {
	f, s := Factors{Add: 1, Tilt: 1, Beta: 1}, &p.Score
	if !Limit(p) {
		f.Beta = math.Log2E / p.Temperature()
	}
	f.Product = p.Scale() * f.Beta
	last := &f.Product
	if s.Softcap != 0 {
		f.Product, f.Cap = p.Scale()/s.Softcap, s.Softcap*f.Beta
		last = &f.Cap
	}
	if s.Terms&attn.TermBias != 0 {
		*last, f.Add = 1, *last
	} else if s.Terms&attn.TermALiBi != 0 {
		*last, f.Tilt = 1, *last
	}
	return f
}

// Limit reports whether a problem's temperature is one of its limits, 0 or +Inf. Panels then hold
// the caller's scores instead of base-2 logarithms.
func Limit(p *attn.Problem) bool {
	t := p.Temperature()
	return t == attn.Frozen || math.IsInf(t, 1)
}

const (
	editRows     = 32
	relativeRows = 128 // more, because each step also multiplies a row of the table for each lane
)

// editStep returns the number of rows that are edited at a time.
func editStep(p *attn.Problem) int {
	if p.Score.Terms&attn.TermRelative != 0 {
		return relativeRows
	}
	return editRows
}

// editsFloats returns the number of float32 numbers in edits.
func editsFloats(p *attn.Problem, lanes int) int {
	step := editStep(p)
	n := lanes * (step/32 + 7)
	if p.Score.Terms&attn.TermBias != 0 {
		n += lanes * step
	}
	if p.Score.Terms&attn.TermRelative != 0 {
		n += lanes * (step + lanes)
	}
	return n
}

// newEdits allocates the edits of a problem's tiles.
func newEdits(p *attn.Problem, lanes int) edits {
	s, step := &p.Score, editStep(p)
	e := edits{Factors: FactorsOf(p), step: step, was: make([]float32, lanes), bits: newBits(lanes, step)}
	e.terms = s.Softcap != 0 || s.Terms&(attn.TermBias|attn.TermALiBi|attn.TermRelative) != 0 || p.Want&(attn.WantMax|attn.WantArgMax) != 0
	e.any = e.terms || p.Mask.Bitmap != attn.NoBitmap
	e.edit = asm.Edit{
		SlopeHi: make([]float32, lanes), SlopeLo: make([]float32, lanes), Pos: make([]int32, lanes),
		Factor: e.Beta, Bounded: true, Bits: e.bits.words,
	}
	if s.Terms&attn.TermBias != 0 {
		e.edit.Bias = make([]float32, lanes*step)
	}
	if s.Terms&attn.TermRelative != 0 {
		e.relative.P = make([]float32, lanes*(step+lanes))
		e.relative.D, e.relative.Factor = p.QDim(), e.Product
	}
	for _, panel := range e.panels() {
		panel.Lanes = lanes
	}
	return e
}

// panels returns the panels of the edits' calls.
func (e *edits) panels() [4]*asm.Panel {
	return [...]*asm.Panel{&e.scores.Panel, &e.edit.Panel, &e.top.Panel, &e.relative.Panel}
}

// put moves the edits to the tile's place.
func (e *edits) put(p *attn.Problem, a *attn.Args, l *place) {
	for _, panel := range e.panels() {
		panel.Width = l.width
	}
	if !e.any {
		return
	}
	e.pos = a.Pos(p, l.b) + l.first
	if p.Score.Terms&attn.TermBias != 0 {
		e.bias.at, e.bias.step = a.Terms.Bias.Offset(l.b, l.first, l.head)
	}
	if p.Score.Terms&attn.TermALiBi != 0 {
		e.slope = -float64(a.Terms.Slopes[l.head]) * e.Beta
		hi, lo := float32(e.slope), float32(0)
		if hi-hi == 0 {
			lo = float32(e.slope - float64(hi))
		}
		fill(e.edit.SlopeHi, hi)
		fill(e.edit.SlopeLo, lo)
	}
	e.bits.put(p, a, l)
}

// farthest is the largest distance that Edit.Pos holds. With it, the distance to any key of a block
// fits in 32 bits.
const farthest = math.MaxInt32 - 1<<16

// slopes fills in the positions of the lanes' queries, counted from key.
func (e *edits) slopes(width, key int) {
	for lane := range width {
		e.edit.Pos[lane] = int32(min(max(e.pos+lane-key, -farthest), farthest))
	}
}

// score computes n rows of finished scores, starting at row. view is the result of bits.see for
// them.
func (t *Tile) score(row, n int, view view) {
	e, s, ops := &t.edits, &t.p.Score, &t.ops.Edit
	rows, key := t.flash.P[row*t.flash.Lanes:], t.flash.Key+row
	e.scores.N, e.scores.P, e.scores.Keys = n, rows, t.flash.Keys.From(row)
	t.ops.Panel.Score(&e.scores)
	e.edit.N, e.edit.P = n, rows
	if s.Terms&attn.TermRelative != 0 {
		t.addRelative(rows, key, n)
	}
	if s.Softcap != 0 {
		e.edit.Scale = e.Cap
		ops.Cap(&e.edit)
		if e.capped != nil {
			copy(e.capped[row*t.flash.Lanes:], rows[:n*t.flash.Lanes])
		}
	}
	if s.Terms&attn.TermBias != 0 {
		t.loadBias(key, n)
		e.edit.Scale = e.Add
		ops.Add(&e.edit)
	}
	if s.Terms&attn.TermALiBi != 0 {
		e.slopes(t.place.width, key)
		e.edit.Scale = e.Tilt
		ops.Slope(&e.edit)
	}
	if view == some {
		ops.Hide(&e.edit)
	}
	if t.p.Want&(attn.WantMax|attn.WantArgMax) != 0 {
		copy(e.was, t.sums.max)
		e.top.N, e.top.P, e.top.M = n, rows, t.sums.max
		t.ops.Panel.Top(&e.top)
		if t.p.Want&attn.WantArgMax != 0 {
			t.sums.largest(e.was, rows, t.flash.Lanes, t.place.rows, key)
		}
	}
}

// loadBias loads the bias of n keys into lanes.
func (t *Tile) loadBias(key, n int) {
	e, b := &t.edits, &t.a.Terms.Bias
	stride := 0
	if b.S > 1 {
		stride = b.SS
	}
	if e.bias.step == 0 { // all keys share one number
		for lane := range t.place.rows {
			x := b.Data[e.bias.at+lane*stride]
			for j := range n {
				e.edit.Bias[j*t.flash.Lanes+lane] = x
			}
		}
		return
	}
	t.intoLanes(e.edit.Bias, asm.Rows{Data: b.Data[e.bias.at+key:], Stride: stride}, n)
}

// addRelative adds the products of the queries with the table's rows to n rows of scores. A block
// of rows and lanes needs one row of the table for each difference between the two. Score
// multiplies these rows as if they were keys, and the results are added along diagonals.
func (t *Tile) addRelative(scores []float32, key, n int) {
	r, lanes, table := &t.edits.relative, t.flash.Lanes, &t.a.Terms.Relative
	d := diagonals{t.a, t.p, t.place.b, t.place.first, key, n}
	first, last := d.rows(t.place.rows)
	r.N, r.Keys = last-first+1, asm.KeyRows(operand.Rows(table, 0, first, t.place.head%table.H))
	t.ops.Panel.Score(r)
	for j := range n {
		row := scores[j*lanes:][:t.place.rows]
		shift := d.at(0, j) - first
		for lane := range row {
			r := shift - lane
			if t.a.Terms.RelativeClip > 0 {
				r = d.at(lane, j) - first
			}
			row[lane] += t.edits.relative.P[r*lanes+lane]
		}
	}
}

// diagonals find the row of the table of relative positions that a lane and a row of a block share:
// n rows starting at key, and lanes starting at query.
type diagonals struct {
	a             *attn.Args
	p             *attn.Problem
	b, query, key int
	n             int
}

func (d *diagonals) at(lane, j int) int { return d.a.Relative(d.p, d.b, d.query+lane, d.key+j) }

// rows returns the first and the last row of the table that a tile of lanes uses.
func (d *diagonals) rows(lanes int) (first, last int) { return d.at(lanes-1, 0), d.at(0, d.n-1) }
