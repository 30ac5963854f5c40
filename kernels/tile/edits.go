package tile

import (
	"encoding/binary"
	"math"
	"unsafe"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/operand"
)

// edits are what becomes of a block's scores between the product and the weights, some rows at a time so that they stay in the first-level cache:
//
//	Score      K Qt, by Factor
//	relative   the product with the table's rows, shifted by a row a lane
//	Cap        softcap
//	Add        bias, brought into lanes as queries are
//	Slope      ALiBi
//	Hide       band and bitmap, as a bit a score
//	largest    max and argmax
//
// Rows of a block that nobody sees are skipped, and so are bits where everybody sees everything.
type edits struct {
	Factors
	any   bool // a block may not go straight from product to weights
	terms bool // for other reasons than a bitmap
	step  int  // rows at a time, a multiple of 32

	bias       []float32 // [step][Lanes]
	biasAt     int
	biasStep   int
	relative   []float32 // [step+Lanes][Lanes]
	slope      float64
	pos        int      // of the tile's first query
	bits       []uint32 // [step/32][Lanes]
	bitsAt     []int    // of a lane in the bitmap
	bitsStep   int
	capped     []float32 // [block][Lanes]: where a Back wants what Cap makes of products, of the rows that somebody sees
	max, was   []float32
	first      []int32
	seen, last int // rows seen <= j < last of the block are seen by somebody
}

// Factors are what the steps multiply by that a problem's scores go through. What brings them to base-2 logarithms is all in one of these, so that it
// rounds once: in the last, but for a Slope after an Add.
type Factors struct {
	Product   float64 // of Score, or Dot
	Cap       float64 // Edit.Scale of Cap, 0 if there is no softcap,
	Add, Tilt float64 // of Add and Slope
	Beta      float64 // finished scores are natural ones times this
}

// FactorsOf are those of a problem.
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

// Limit is whether a problem's temperature is one of its limits, whose panels hold scores as they are and not in base-2 logarithms.
func Limit(p *attn.Problem) bool {
	t := p.Temperature()
	return t == attn.Frozen || math.IsInf(t, 1)
}

const (
	editRows     = 32
	relativeRows = 128 // more, because each step has a row more for each lane
)

// editStep is the number of rows at a time.
func editStep(p *attn.Problem) int {
	if p.Score.Terms&attn.TermRelative != 0 {
		return relativeRows
	}
	return editRows
}

// editsFloats is the number of float32 numbers in edits.
func editsFloats(p *attn.Problem, ops *asm.Ops) int {
	step := editStep(p)
	n := ops.Lanes * (step/32 + 7)
	if p.Score.Terms&attn.TermBias != 0 {
		n += ops.Lanes * step
	}
	if p.Score.Terms&attn.TermRelative != 0 {
		n += ops.Lanes * (step + ops.Lanes)
	}
	return n
}

// prepareEdits decides what a problem's scores go through.
func (t *Tile) prepareEdits() {
	e, s, n := &t.edits, &t.p.Score, t.ops.Lanes
	e.step = editStep(t.p)
	e.bits, e.bitsAt, e.was = make([]uint32, n*e.step/32), make([]int, n), make([]float32, n)
	t.Edit.SlopeHi, t.Edit.SlopeLo, t.Edit.Pos = make([]float32, n), make([]float32, n), make([]int32, n)
	if s.Terms&attn.TermBias != 0 {
		e.bias = make([]float32, n*e.step)
	}
	if s.Terms&attn.TermRelative != 0 {
		e.relative = make([]float32, n*(e.step+n))
	}
	e.terms = s.Softcap != 0 || s.Terms&(attn.TermBias|attn.TermALiBi|attn.TermRelative) != 0 || t.p.Want&(attn.WantMax|attn.WantArgMax) != 0
	e.any = e.terms || t.p.Mask.Bitmap != attn.NoBitmap
	e.Factors = FactorsOf(t.p)
	t.Factor = e.Product
	// Queries take the factor on their way in where that saves a product for each score. It rounds each of their numbers: so not where means are taken of
	// scores, nor where it could drive numbers out of range.
	f := math.Abs(t.Factor)
	t.Scaled = t.ops.FactorFirst && !e.terms && t.S == nil && f >= 0x1p-30 && f <= 0x1p30
}

// placeEdits tells the edits where the tile stands.
func (t *Tile) placeEdits() {
	e, a, p := &t.edits, t.a, t.p
	if !e.any {
		return
	}
	e.pos = a.Pos(p, t.b) + t.i
	if p.Score.Terms&attn.TermBias != 0 {
		e.biasAt, e.biasStep = a.Terms.Bias.Offset(t.b, t.i, t.h)
	}
	if p.Score.Terms&attn.TermALiBi != 0 {
		e.slope = -float64(a.Terms.Slopes[t.h]) * e.Beta
		hi, lo := float32(e.slope), float32(0)
		if hi-hi == 0 {
			lo = float32(e.slope - float64(hi))
		}
		fill(t.Edit.SlopeHi, hi)
		fill(t.Edit.SlopeLo, lo)
	}
	for lane := range t.Width {
		_, i := t.Query(min(lane, t.rows-1))
		if p.Mask.Bitmap == attn.BlockBitmap {
			i /= p.Mask.Block
		}
		e.bitsAt[lane], e.bitsStep = a.Allowed.Offset(t.b, i, t.h)
	}
}

// sight is how much of some rows the queries of a tile see.
type sight int

const (
	none sight = iota
	some
	all
)

// show works out which of n rows each lane sees, for Hide.
func (t *Tile) show(row, n int) sight {
	if key := t.Edit.Key + row; t.p.Mask.Bitmap == attn.NoBitmap && t.allLo <= key && key+n <= t.allHi {
		return all
	}
	e := &t.edits
	if side := t.p.Mask.Block; side != 0 && e.bitsAt[0] == e.bitsAt[t.Width-1] && t.allLo <= t.Edit.Key+row && t.Edit.Key+row+n <= t.allHi {
		if first := (t.Edit.Key + row) / side; first == (t.Edit.Key+row+n-1)/side { // one bit for all of it
			if bit := e.bitsAt[0] + first*e.bitsStep; t.a.Allowed.Words[bit/64]>>(bit%64)&1 == 0 {
				return none
			}
			return all
		}
	}
	union, common := uint32(0), ^uint32(0)
	for at := 0; at < n; at += 32 {
		key, count := t.Edit.Key+row+at, min(32, n-at)
		words := e.bits[at/32*t.Lanes:][:t.Width]
		rest := ^interval(0, count)
		place, shown := -1, ^uint32(0)
		for lane := range words {
			word := interval(int(t.Edit.Lo[lane])-key, min(int(t.Edit.Hi[lane])-key, count))
			if t.p.Mask.Bitmap != attn.NoBitmap && word != 0 {
				if e.bitsAt[lane] != place { // queries of a block, or all of them, share a row of the bitmap
					place = e.bitsAt[lane]
					shown = Shown(t.p, t.a, place, e.bitsStep, key, count)
				}
				word &= shown
			}
			words[lane] = word
			union |= word
			common &= word | rest
		}
	}
	switch {
	case union == 0:
		return none
	case common == ^uint32(0):
		return all
	}
	return some
}

// interval has the bits from <= i < to set, as far as a word has them.
func interval(from, to int) uint32 {
	from, to = max(from, 0), min(to, 32)
	if from >= to {
		return 0
	}
	return ^uint32(0) << from & (^uint32(0) >> (32 - to))
}

// Shown is which of n <= 32 keys from one on the row of the bitmap shows that starts at an element, and has one each step.
func Shown(p *attn.Problem, a *attn.Args, at, step, key, n int) uint32 {
	m := &a.Allowed
	if p.Mask.Bitmap == attn.BlockBitmap {
		side, word := p.Mask.Block, uint32(0)
		for j := key; j < key+n; j += side - j%side {
			if bit := at + j/side*step; m.Words[bit/64]>>(bit%64)&1 != 0 {
				word |= interval(j-key, j-key+side-j%side)
			}
		}
		return word
	}
	if step == 0 { // one for all keys
		if m.Bool != nil && m.Bool[at] || m.Words != nil && m.Words[at/64]>>(at%64)&1 != 0 {
			return ^uint32(0)
		}
		return 0
	}
	if p.Mask.Bitmap == attn.BoolBitmap {
		return pack(m.Bool[at+key:][:n])
	}
	bit := at + key
	word := m.Words[bit/64] >> (bit % 64)
	if bit%64+n > 64 {
		word |= m.Words[bit/64+1] << (64 - bit%64)
	}
	return uint32(word)
}

// pack is a bit for each of at most 32 bools. Eight of them, which are bytes of 0 or 1, are one multiplication: byte i, the lowest first, has its bit
// moved to 56+i, and no two products meet below.
func pack(show []bool) (word uint32) {
	const gather = 0x0102040810204080
	at := 0
	for ; at+8 <= len(show); at += 8 {
		eight := binary.LittleEndian.Uint64((*[8]byte)(unsafe.Pointer(&show[at]))[:])
		word |= uint32(eight*gather>>56) << at
	}
	for ; at < len(show); at++ {
		if show[at] {
			word |= 1 << at
		}
	}
	return word
}

// edited is Weights where scores are edited.
func (t *Tile) edited() {
	e, p, end := &t.edits, &t.Panel, t.N
	e.seen, e.last = end, 0
	for row := 0; row < end; {
		n := min(e.step, end-row)
		v := t.show(row, n)
		if v == none {
			clear(t.P[row*t.Lanes : (row+n)*t.Lanes])
			row += n
			continue
		}
		loop := t.ops.Exp
		if v == all && !e.terms { // as far as it goes, in one
			loop = t.ops.Flash
			for row+n < end && t.show(row+n, min(e.step, end-row-n)) == all {
				n += min(e.step, end-row-n)
			}
		} else {
			t.finish(row, n, v)
		}
		e.seen, e.last = min(e.seen, row), row+n
		p.From, p.N, p.Scored = row, row+n, false
		t.weigh(loop, p)
		row += n
	}
	p.N = end
}

// farthest is how far apart a query and a block's first key are at most, as loops see it: no key of the block is so far off that a number of 32 bits does not
// hold it.
const farthest = math.MaxInt32 - 1<<16

// finish makes n rows of finished scores.
func (t *Tile) finish(row, n int, v sight) {
	e, p, s := &t.edits, &t.part, &t.p.Score
	*p = t.Panel
	p.N, p.From, p.P = n, 0, p.P[row*p.Lanes:]
	if p.D > 0 {
		p.K, p.KParts = p.K.From(row), p.KParts.From(row)
	}
	key := t.Edit.Key + row
	t.ops.Score(p)
	if s.Terms&attn.TermRelative != 0 {
		t.addRelative(p, key)
	}
	if s.Softcap != 0 {
		p.Edit.Scale = e.Cap
		t.ops.Cap(p)
		if e.capped != nil {
			copy(e.capped[row*p.Lanes:], p.P[:n*p.Lanes])
		}
	}
	if s.Terms&attn.TermBias != 0 {
		t.loadBias(key, n)
		p.Edit.Add, p.Edit.Scale, p.Edit.Factor, p.Edit.Bounded = e.bias, e.Add, e.Beta, true
		t.ops.Add(p)
	}
	if s.Terms&attn.TermALiBi != 0 {
		for lane := range t.Width {
			p.Edit.Pos[lane] = int32(min(max(e.pos+lane-key, -farthest), farthest))
		}
		p.Edit.Scale = e.Tilt
		t.ops.Slope(p)
	}
	if v == some {
		p.Edit.Bits = e.bits
		t.ops.Hide(p)
	}
	if t.p.Want&(attn.WantMax|attn.WantArgMax) != 0 {
		t.largest(p, key)
	}
}

// loadBias brings n keys of the bias into lanes.
func (t *Tile) loadBias(key, n int) {
	e, b := &t.edits, &t.a.Terms.Bias
	stride := 0
	if b.S > 1 {
		stride = b.SS
	}
	if e.biasStep == 0 { // one for all keys
		for lane := range t.rows {
			x := b.Data[e.biasAt+lane*stride]
			for j := range n {
				e.bias[j*t.Lanes+lane] = x
			}
		}
		return
	}
	t.intoLanes(e.bias, asm.Rows{Data: b.Data[e.biasAt+key:], Stride: stride}, n)
}

// addRelative adds the products of the queries with the table's rows. Rows of a step and lanes need a row of the table for each difference between the
// two; their products are taken as those with keys are, and added along diagonals.
func (t *Tile) addRelative(p *asm.Panel, key int) {
	table, clip := &t.a.Terms.Relative, t.a.Terms.RelativeClip
	at := func(lane, j int) int { return t.a.Relative(t.p, t.b, t.i+lane, key+j) }
	first, last := at(t.rows-1, 0), at(0, p.N-1)
	scores, qt, d, n, k, parts := p.P, p.Qt, p.D, p.N, p.K, p.KParts
	p.P, p.Qt, p.D, p.N = t.edits.relative, t.load.rawQueries(t), t.p.QDim(), last-first+1
	p.K, p.KParts = operand.Rows(table, 0, first, t.h%table.H), asm.Parts{}
	t.ops.Score(p)
	p.P, p.Qt, p.D, p.N, p.K, p.KParts = scores, qt, d, n, k, parts
	for j := range n {
		row := scores[j*t.Lanes:][:t.rows]
		shift := at(0, j) - first
		for lane := range row {
			r := shift - lane
			if clip > 0 {
				r = at(lane, j) - first
			}
			row[lane] += t.edits.relative[r*t.Lanes+lane]
		}
	}
}

// largest keeps the largest score of each lane, and its key.
func (t *Tile) largest(p *asm.Panel, key int) {
	e, m := &t.edits, p.M
	copy(e.was, e.max)
	p.M = e.max
	t.ops.Top(p)
	p.M = m
	if t.p.Want&attn.WantArgMax == 0 {
		return
	}
	for lane := range t.rows {
		if top := e.max[lane]; top > e.was[lane] {
			j := 0
			for p.P[j*t.Lanes+lane] != top {
				j++
			}
			e.first[lane] = int32(key + j)
		}
	}
}

func fill(x []float32, v float32) {
	for i := range x {
		x[i] = v
	}
}
