package positions

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"attnlab/attn"
)

// A Rope turns pairs of a row's elements by angles that grow with its position:
//
//	(x, y) at position m -> (x cos m w_c - y sin m w_c, x sin m w_c + y cos m w_c)    w_c = base^(-2c/turned), for pair c
//
// Read as complex numbers, x+iy is multiplied by exp(i m w_c). It is attn.Rotate in float64.
type Rope struct {
	Dim    int     // of a row
	Turned int     // so many elements turn, from the first on, and the others stay; 0: all
	Base   float64 // 0: DefaultBase
	Halves bool    // pair c is elements c and c+n, of n pairs; otherwise 2c and 2c+1
}

// Kind is the name that package attn has for which elements turn together.
func (r Rope) Kind() attn.Rope {
	if r.Halves {
		return attn.RopeHalves
	}
	return attn.RopeInterleaved
}

// turned is the number of elements that turn, with an odd one at the end, which has nothing to turn
// with and stays.
func (r Rope) turned() int {
	if r.Turned == 0 {
		return r.Dim
	}
	return r.Turned
}

// Frequencies are those of the pairs.
func (r Rope) Frequencies() []float64 {
	if r.turned() < 0 || r.turned() > r.Dim {
		panic(fmt.Sprintf("positions: a rotation of %d elements in rows of %d", r.turned(), r.Dim))
	}
	return Frequencies(r.turned(), r.Base)[:r.turned()/2]
}

// pair is where the two elements of pair c of n are.
func (r Rope) pair(c, n int) (x, y int) {
	if r.Halves {
		return c, c + n
	}
	return 2 * c, 2*c + 1
}

// Turn is a row turned to a position. To turn it back, turn it to the negative position: that is
// the inverse, which is the transpose, and so also how a gradient comes back through the rotation.
// (It is not the rotation itself, as the library's page on positions says: E-40.)
func (r Rope) Turn(row []float64, pos float64) []float64 {
	if len(row) != r.Dim {
		panic(fmt.Sprintf("positions: a row of %d numbers, the rotation is of rows of %d", len(row), r.Dim))
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

// Rows turns the rows of a matrix, of which the first stands at a position and each other one
// behind the one before.
func (r Rope) Rows(x mat.Matrix, first float64) *mat.Dense {
	to := mat.DenseCopyOf(x)
	rows, _ := to.Dims()
	for i := range rows {
		to.SetRow(i, r.Turn(to.RawRowView(i), first+float64(i)))
	}
	return to
}

// Matrix is R with Turn(row, pos) = R row: blocks of cosines and sines, orthogonal.
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

// Tables are the cosines and sines of each pair at each position from 0 on: what attn.RopeTables
// rounds to float32.
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

// Score is (R_m q).(R_n k), which depends on m-n alone.
func (r Rope) Score(q, k []float64, m, n int) float64 {
	return floats.Dot(r.Turn(q, float64(m)), r.Turn(k, float64(n)))
}
