package positions

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
)

// DefaultBase is the base of the frequencies if none is given, as in the literature.
const DefaultBase = 10000

// Frequencies returns w_i = base^(-2i/d), in radians per position, for each i with 2i < d: a
// geometric sequence from 1 down to almost 1/base. Base 0 means DefaultBase.
func Frequencies(d int, base float64) []float64 {
	if base == 0 {
		base = DefaultBase
	}
	w := make([]float64, (d+1)/2)
	for i := range w {
		w[i] = math.Pow(base, -2*float64(i)/float64(d))
	}
	return w
}

// Wavelengths returns 2 pi / w_i, the period of each frequency in positions.
func Wavelengths(d int, base float64) []float64 {
	lengths := Frequencies(d, base)
	for i, w := range lengths {
		lengths[i] = 2 * math.Pi / w
	}
	return lengths
}

// A Sinusoid is the fixed encoding of a position by Dim numbers, which is added to a row. Base 0
// means DefaultBase.
type Sinusoid struct {
	Dim  int
	Base float64
}

// At returns the encoding of one position, which may be fractional or negative: sines in the even
// columns, cosines in the odd ones. An odd Dim ends in a sine without a cosine.
func (s Sinusoid) At(pos float64) []float64 {
	x := make([]float64, s.Dim)
	for i, w := range Frequencies(s.Dim, s.Base) {
		x[2*i] = math.Sin(pos * w)
		if 2*i+1 < s.Dim {
			x[2*i+1] = math.Cos(pos * w)
		}
	}
	return x
}

// Table returns the encodings of positions 0 to positions-1, one in each row.
func (s Sinusoid) Table(positions int) *mat.Dense {
	m := mat.NewDense(positions, s.Dim, nil)
	for pos := range positions {
		m.SetRow(pos, s.At(float64(pos)))
	}
	return m
}

// Shift returns the matrix T_k with PE(pos+k) = T_k PE(pos) at every pos. By the addition theorem
// it turns pair i of (sine, cosine) by the block
//
//	 cos w_i k   sin w_i k
//	-sin w_i k   cos w_i k
//
// T_k is orthogonal, T_k T_m = T_(k+m), and T_-k undoes T_k, so a linear layer can look k positions
// back. There is no such matrix for an odd Dim, whose last sine has no cosine to turn with.
func (s Sinusoid) Shift(k float64) (*mat.Dense, error) {
	if s.Dim%2 != 0 || s.Dim <= 0 {
		return nil, fmt.Errorf("positions: shift of an encoding of %d numbers, want an even number: a sine shifts together with its cosine", s.Dim)
	}
	t := mat.NewDense(s.Dim, s.Dim, nil)
	for i, w := range Frequencies(s.Dim, s.Base) {
		sin, cos := math.Sincos(w * k)
		t.Set(2*i, 2*i, cos)
		t.Set(2*i, 2*i+1, sin)
		t.Set(2*i+1, 2*i, -sin)
		t.Set(2*i+1, 2*i+1, cos)
	}
	return t, nil
}

// Product returns the inner product of two encodings at the given distance, which does not depend
// on their positions: sum_i cos(w_i distance) over the complete pairs. It is symmetric in the
// distance, so it cannot tell before from after.
func (s Sinusoid) Product(distance float64) float64 {
	sum := 0.0
	for _, w := range Frequencies(s.Dim, s.Base)[:s.Dim/2] {
		sum += math.Cos(w * distance)
	}
	return sum
}

// Score returns (q + PE(m)).(k + PE(n)): the product of a query at m and a key at n, both with
// their encodings added. It has four terms,
//
//	q.k + q.PE(n) + PE(m).k + PE(m).PE(n)
//
// The first does not depend on positions, and the last only on their distance. The two in between
// depend on the positions themselves.
func (s Sinusoid) Score(q, k []float64, m, n int) float64 {
	if len(q) != s.Dim || len(k) != s.Dim {
		panic(fmt.Sprintf("positions: got a query of %d and a key of %d numbers, want %d, the Dim of the encoding", len(q), len(k), s.Dim))
	}
	p, r := s.At(float64(m)), s.At(float64(n))
	sum := 0.0
	for a := range q {
		sum += (q[a] + p[a]) * (k[a] + r[a])
	}
	return sum
}
