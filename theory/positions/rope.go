package positions

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"attnlab/attn"
)

// A Rope turns pairs of a row's elements by angles that grow with its position. For pair c at
// position m,
//
//	(x, y) -> (x cos m w_c - y sin m w_c, x sin m w_c + y cos m w_c)
//	w_c    =  base^(-2c/turned)
//
// As complex numbers, x+iy is multiplied by exp(i m w_c). A Rope is attn.Rotate in float64.
type Rope struct {
	Dim int // of a row
	// Turned is the number of elements that turn, counted from the first; the others stay. 0 means
	// all.
	Turned int
	Base   float64 // 0 means DefaultBase
	// Halves pairs element c with c+n, of n pairs; otherwise pair c is 2c and 2c+1.
	Halves bool
}

// Kind returns the name in package attn for this way of pairing.
func (r Rope) Kind() attn.Rope {
	if r.Halves {
		return attn.RopeHalves
	}
	return attn.RopeInterleaved
}

// turned returns the number of elements that turn. If it is odd, the last of them has no partner
// and stays.
func (r Rope) turned() int {
	if r.Turned == 0 {
		return r.Dim
	}
	return r.Turned
}

// Frequencies returns the frequency of each pair.
func (r Rope) Frequencies() []float64 {
	if r.turned() < 0 || r.turned() > r.Dim {
		panic(fmt.Sprintf("positions: got a rotation of %d elements in rows of %d, want at most the row", r.turned(), r.Dim))
	}
	return Frequencies(r.turned(), r.Base)[:r.turned()/2]
}

// pair returns the indices of the two elements of pair c of n.
func (r Rope) pair(c, n int) (x, y int) {
	if r.Halves {
		return c, c + n
	}
	return 2 * c, 2*c + 1
}

// Turn returns a row turned to a position. Turning to the negative position is the inverse. It is
// the transpose, and therefore also takes a gradient back through the rotation. (The gradient is
// not the rotation itself, as the library's page on positions says: E-40.)
func (r Rope) Turn(row []float64, pos float64) []float64 {
	if len(row) != r.Dim {
		panic(fmt.Sprintf("positions: got a row of %d numbers, want %d, the Dim of the rotation", len(row), r.Dim))
	}
	to := make([]float64, len(row))
	copy(to, row)
	w := r.Frequencies()
	for c := range w {
		sin, cos := math.Sincos(pos * w[c])
		x, y := r.pair(c, len(w))
		to[x], to[y] = row[x]*cos-row[y]*sin, row[x]*sin+row[y]*cos
	}
	return to
}

// Rows turns the rows of a matrix, which are at consecutive positions from first.
func (r Rope) Rows(x mat.Matrix, first float64) *mat.Dense {
	to := mat.DenseCopyOf(x)
	rows, _ := to.Dims()
	for i := range rows {
		to.SetRow(i, r.Turn(to.RawRowView(i), first+float64(i)))
	}
	return to
}

// Matrix returns the orthogonal matrix R with Turn(row, pos) = R row: blocks of cosines and sines.
func (r Rope) Matrix(pos float64) *mat.Dense {
	m := mat.NewDense(r.Dim, r.Dim, nil)
	for i := range r.Dim {
		m.Set(i, i, 1)
	}
	w := r.Frequencies()
	for c := range w {
		sin, cos := math.Sincos(pos * w[c])
		x, y := r.pair(c, len(w))
		m.Set(x, x, cos)
		m.Set(x, y, -sin)
		m.Set(y, x, sin)
		m.Set(y, y, cos)
	}
	return m
}

// Tables returns the cosines and sines of each pair at positions 0 to positions-1. attn.RopeTables
// rounds them to float32.
func (r Rope) Tables(positions int) (cos, sin *mat.Dense) {
	w := r.Frequencies()
	cos, sin = mat.NewDense(positions, len(w), nil), mat.NewDense(positions, len(w), nil)
	for m := range positions {
		for c := range w {
			s, x := math.Sincos(float64(m) * w[c])
			cos.Set(m, c, x)
			sin.Set(m, c, s)
		}
	}
	return cos, sin
}

// Score returns (R_m q).(R_n k), which depends on positions only through m-n.
func (r Rope) Score(q, k []float64, m, n int) float64 {
	return floats.Dot(r.Turn(q, float64(m)), r.Turn(k, float64(n)))
}
