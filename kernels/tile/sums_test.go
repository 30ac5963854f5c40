package tile

import (
	"math"
	"slices"
	"testing"

	"attnlab/attn"
	"attnlab/kernels/asm"
)

var nan = float32(math.NaN())

// TestSumsEmpty checks that empty resets everything that a tile has summed before.
func TestSumsEmpty(t *testing.T) {
	for _, temp := range []float64{1, attn.Frozen} {
		s := NewSums(asm.Portable(2, 1, 8, 1, 1))
		for _, x := range [][]float32{s.M, s.L, s.S, s.best, s.max} {
			fill(x, nan)
		}
		s.first[1], s.hidden[1] = 7, true
		s.empty(temp, attn.WantMax|attn.WantArgMax)
		best := float32(0)
		if temp == attn.Frozen {
			best = asm.Unset
		}
		for lane := range 2 {
			if s.M[lane] != asm.Unset || s.L[lane] != 0 || s.S[lane] != 0 || s.best[lane] != best || s.max[lane] != -inf || s.first[lane] != -1 || s.hidden[lane] {
				t.Errorf("temperature %v: lane %d: %+v", temp, lane, s)
			}
		}
	}
}

// TestSumsLimit checks how limit rewrites scores at the limits of temperature, block after block.
func TestSumsLimit(t *testing.T) {
	type block struct{ scores, want []float32 }
	for _, c := range []struct {
		name   string
		temp   float64
		blocks []block
		best   float32
		l      float32 // L, which was 4 before the last block
		keep   float32 // keep, which was 1 before the last block
	}{
		{"the largest alone", attn.Frozen, []block{{[]float32{1, 3, 2}, []float32{-inf, 0, -inf}}}, 3, 0, 0},
		{"all largest", attn.Frozen, []block{{[]float32{3, 1, 3}, []float32{0, -inf, 0}}}, 3, 0, 0},
		{"none in a later block", attn.Frozen, []block{{[]float32{3}, []float32{0}}, {[]float32{2, 1}, []float32{-inf, -inf}}}, 3, 4, 1},
		{"as large in a later block", attn.Frozen, []block{{[]float32{3}, []float32{0}}, {[]float32{2, 3}, []float32{-inf, 0}}}, 3, 4, 1},
		{"larger in a later block", attn.Frozen, []block{{[]float32{3}, []float32{0}}, {[]float32{5, 3}, []float32{0, -inf}}}, 5, 0, 0},
		{"hidden", attn.Frozen, []block{{[]float32{-inf, -inf}, []float32{-inf, -inf}}}, asm.Unset, 4, 1},
		{"not a number", attn.Frozen, []block{{[]float32{1, nan}, []float32{1, nan}}}, asm.Unset, 4, 1},
		{"an infinity", attn.Frozen, []block{{[]float32{1, inf}, []float32{1, inf}}}, asm.Unset, 4, 1},
		{"uniform", math.Inf(1), []block{{[]float32{1, -inf, 2}, []float32{0, -inf, 0}}, {[]float32{4}, []float32{0}}}, 7, 4, 1},
		{"uniform, not a number", math.Inf(1), []block{{[]float32{1, nan}, []float32{1, nan}}}, 0, 4, 1},
	} {
		s := NewSums(asm.Portable(2, 1, 8, 1, 1))
		s.empty(c.temp, attn.WantMax|attn.WantArgMax)
		keep := make([]float32, 2)
		for _, b := range c.blocks {
			fill(keep, 1)
			s.L[1], s.M[1] = 4, 6
			p := asm.Panel{Lanes: 2, Width: 2, N: len(b.scores), P: make([]float32, 2*len(b.scores))}
			for j, x := range b.scores {
				p.P[2*j], p.P[2*j+1] = -inf, x // lane 0 sees nothing
			}
			s.limit(&p, keep, c.temp)
			for j, want := range b.want {
				if x := p.P[2*j+1]; x != want && !(x != x && want != want) {
					t.Errorf("%s: score %d of %v became %v, want %v", c.name, j, b.scores, x, want)
				}
				if p.P[2*j] != -inf {
					t.Errorf("%s: a hidden score became %v", c.name, p.P[2*j])
				}
			}
		}
		m := float32(6)
		if c.keep == 0 {
			m = asm.Unset
		}
		if s.best[1] != c.best || s.L[1] != c.l || keep[1] != c.keep || s.M[1] != m {
			t.Errorf("%s: best is %v, L %v, keep %v, M %v", c.name, s.best[1], s.L[1], keep[1], s.M[1])
		}
		if s.L[0] != 0 || keep[0] != 1 {
			t.Errorf("%s: in a lane that sees nothing L is %v, keep %v", c.name, s.L[0], keep[0])
		}
	}
}

// TestSumsLargest checks that the key of the largest score is the first that has it.
func TestSumsLargest(t *testing.T) {
	s := NewSums(asm.Portable(4, 1, 8, 1, 1))
	s.empty(1, attn.WantMax|attn.WantArgMax)
	was := []float32{-inf, 3, 3, 3}
	s.max = []float32{5, 4, 3, nan}
	s.first = []int32{-1, 2, 2, 2}
	p := []float32{
		4.5, 0, 3, 0,
		5, 4, 3, 0,
		5, 4, 3, 0,
	}
	if s.largest(was, p, 4, 4, 10); !slices.Equal(s.first, []int32{11, 11, 2, 2}) {
		t.Errorf("first keys are %v", s.first)
	}
	s.max[3], s.first[1] = 7, 2 // a lane without a query is not checked
	if s.largest(was, p, 4, 3, 10); s.first[3] != 2 {
		t.Errorf("the key of lane 3, which has no query, is %d", s.first[3])
	}
}

// TestSumsNumbers checks that an S that is not wanted is 0.
func TestSumsNumbers(t *testing.T) {
	s := Sums{Sums: asm.Sums{M: []float32{1, 2}, L: []float32{3, 4}, S: []float32{5, 6}}}
	if m, l, sum := s.numbers(1); m != 2 || l != 4 || sum != 6 {
		t.Errorf("M, L and S are %v, %v and %v", m, l, sum)
	}
	s.S = nil
	if m, l, sum := s.numbers(1); m != 2 || l != 4 || sum != 0 {
		t.Errorf("without S, M, L and S are %v, %v and %v", m, l, sum)
	}
}
