package tile

import (
	"math"
	"testing"

	"attnlab/attn"
)

// TestFactors checks that the edits, each with its factor, turn a product into the finished score
// times Beta, and that the factor of base-2 logarithms is applied once.
func TestFactors(t *testing.T) {
	const product, bias, slope, distance = 6., .75, -.5, 3.
	for _, c := range []struct {
		score attn.Score
		want  float64 // finished score
	}{
		{attn.Score{Scale: .5}, 3},
		{attn.Score{Scale: .5, Temp: 2}, 3},
		{attn.Score{Scale: .5, Softcap: 4}, 4 * math.Tanh(3./4)},
		{attn.Score{Scale: .5, Terms: attn.TermBias}, 3.75},
		{attn.Score{Scale: .5, Temp: 2, Terms: attn.TermBias}, 3.75},
		{attn.Score{Scale: .5, Terms: attn.TermALiBi}, 1.5},
		{attn.Score{Scale: .5, Softcap: 4, Terms: attn.TermBias | attn.TermALiBi}, 4*math.Tanh(3./4) + .75 - 1.5},
		{attn.Score{Scale: .5, Softcap: 4, Temp: math.Inf(1), Terms: attn.TermALiBi}, 4*math.Tanh(3./4) - 1.5},
		{attn.Score{Scale: .5, Temp: attn.Frozen, Terms: attn.TermBias | attn.TermALiBi}, 2.25},
	} {
		p := attn.Problem{Dim: 4, Score: c.score}
		f := FactorsOf(&p)
		beta := 1.
		if !Limit(&p) {
			beta = math.Log2E / p.Temperature()
		}
		x := product * f.Product
		if c.score.Softcap != 0 {
			x = f.Cap * math.Tanh(x)
		}
		if c.score.Terms&attn.TermBias != 0 {
			x = f.Add*x + f.Beta*bias
		}
		if c.score.Terms&attn.TermALiBi != 0 {
			x = f.Tilt*x + f.Beta*slope*distance
		}
		if math.Abs(x-c.want*beta) > 1e-14*math.Abs(x) || f.Beta != beta {
			t.Errorf("%+v: score %v times %v, want %v times %v", c.score, x/f.Beta, f.Beta, c.want, beta)
		}
		ones := 0
		for _, x := range []float64{f.Product, f.Cap, f.Add, f.Tilt} {
			if x == 1 || x == 0 {
				ones++
			}
		}
		if c.score.Softcap == 0 && ones != 3 {
			t.Errorf("%+v: factors %+v: more than one rounds", c.score, f)
		}
	}
}

// bitmapCall returns a call with a bitmap that shows some keys to some queries, and all or none of
// long stretches of keys.
func bitmapCall(p *attn.Problem, all bool) *attn.Args {
	a := &attn.Args{Q: attn.Tensor{B: 1, S: p.SeqQ, H: 1}, K: attn.Tensor{B: 1, S: p.SeqKV, H: 1}}
	nq, nk := p.SeqQ, p.SeqKV
	if p.Mask.Bitmap == attn.BlockBitmap {
		nq, nk = cover(nq, p.Mask.Block), cover(nk, p.Mask.Block)
	}
	m := &a.Allowed
	m.B, m.H, m.S, m.D, m.SS = 1, 1, nq, nk, nk
	if all {
		m.S, m.D, m.SS = 1, 1, 1
	}
	m.SB, m.SH = m.S*m.SS, m.S*m.SS
	m.Words, m.Bool = make([]uint64, cover(m.SB, 64)+1), make([]bool, m.SB)
	for i := range m.Bool {
		key := i % m.SS
		if m.Bool[i] = key%64 < 32 && i*i%7 < 3 || key >= 160; m.Bool[i] {
			m.Words[i/64] |= 1 << (i % 64)
		}
	}
	if p.Mask.Bitmap == attn.BoolBitmap {
		m.Words = nil
	} else {
		m.Bool = nil
	}
	return a
}

// TestBits checks the bit of each score, and the view of the rows, against the mask's answer for
// each query and key.
func TestBits(t *testing.T) {
	const step = 64
	views := map[view]int{}
	for _, band := range masks {
		for _, mask := range []attn.Mask{
			band, band.With(attn.BoolBitmap), band.With(attn.PackedBitmap), band.WithBlocks(5), band.WithBlocks(16), band.WithBlocks(64),
		} {
			for _, broadcast := range []bool{false, mask.Bitmap != attn.NoBitmap} {
				p := attn.Problem{Batch: 1, SeqQ: 90, SeqKV: 230, HeadsQ: 1, HeadsKV: 1, Mask: mask}
				a := bitmapCall(&p, broadcast)
				for _, first := range []int{0, 17, 18, 64} {
					l := seen(mask, spot{230 - 90 + first, 230, 19, 1, 0})
					l.first = first
					s := newBits(24, step)
					s.put(&p, a, &l)
					for key := 0; key < 230; key += 32 {
						for _, n := range []int{64, 32, 11} {
							n = min(n, 230-key)
							view := s.see(&p, a, &l, key, n)
							views[view]++
							checkBits(t, &p, a, &l, &s, key, n, view)
						}
					}
				}
			}
		}
	}
	if len(views) != 3 || min(views[none], views[some], views[all]) < 100 {
		t.Errorf("views: %v", views)
	}
}

func checkBits(t *testing.T, p *attn.Problem, a *attn.Args, l *place, s *bits, key, n int, view view) {
	t.Helper()
	shown := 0
	for lane := range l.width {
		_, i := l.query(min(lane, l.rows-1))
		for j := range n {
			shows := l.sees(lane, key+j) && (p.Mask.Bitmap == attn.NoBitmap || a.Shows(p, 0, i, 0, key+j))
			if shows {
				shown++
			}
			if view == some && (s.words[j/32*s.lanes+lane]>>(j%32)&1 != 0) != shows {
				t.Fatalf("%v: lane %d, query %d, key %d: shown is %v", p.Mask, lane, i, key+j, shows)
			}
		}
	}
	if view == none && shown > 0 || view == all && shown < l.width*n {
		t.Fatalf("%v, queries from %d on, %d keys from %d on: %d scores are shown, the view is %d", p.Mask, l.first, n, key, shown, view)
	}
	if view == some && (shown == 0 || shown == l.width*n) {
		t.Fatalf("%v, queries from %d on, %d keys from %d on: all or none is shown, the view is %d", p.Mask, l.first, n, key, view)
	}
}

// TestSlopes checks that the distances for Slope fit in 32 bits for keys at any distance.
func TestSlopes(t *testing.T) {
	p := attn.Problem{Score: attn.Score{Terms: attn.TermALiBi}}
	e := newEdits(&p, 4)
	for _, c := range []struct {
		pos, key int
		want     [2]int32 // distances of the first and the last lane
	}{
		{5, 0, [2]int32{5, 8}},
		{5, 64, [2]int32{-59, -56}},
		{1 << 40, 0, [2]int32{farthest, farthest}},
		{0, 1 << 40, [2]int32{-farthest, -farthest}},
	} {
		e.pos = c.pos
		e.slopes(4, c.key)
		if got := [2]int32{e.edit.Pos[0], e.edit.Pos[3]}; got != c.want {
			t.Errorf("queries from %d on, keys from %d on: %v, want %v", c.pos, c.key, got, c.want)
		}
	}
}

// TestDiagonals checks that the rows of the table are all that the lanes and rows of a block use,
// in their order.
func TestDiagonals(t *testing.T) {
	for _, clip := range []int{0, 3} {
		p := attn.Problem{Batch: 1, SeqQ: 20, SeqKV: 50, Score: attn.Score{Terms: attn.TermRelative}}
		a := attn.Args{Q: attn.Tensor{B: 1, S: 20, H: 1}, K: attn.Tensor{B: 1, S: 50, H: 1}}
		a.Terms.RelativeClip = clip
		d := diagonals{&a, &p, 0, 4, 16, 9}
		first, last := d.rows(7)
		lo, hi := math.MaxInt, math.MinInt
		for lane := range 7 {
			for j := range 9 {
				r := a.Relative(&p, 0, 4+lane, 16+j)
				if d.at(lane, j) != r {
					t.Errorf("lane %d, row %d: row %d of the table, want %d", lane, j, d.at(lane, j), r)
				}
				lo, hi = min(lo, r), max(hi, r)
			}
		}
		if first != lo || last != hi {
			t.Errorf("clip %d: rows %d to %d of the table, want %d to %d", clip, first, last, lo, hi)
		}
	}
}
