package equations

import (
	"math"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/mathext/prng"
)

// numpyRandom repeats the draws of the lesson's listings after np.random.seed. The integers come
// from the Mersenne twister, and two of them make a uniform number of 53 bits. Marsaglia's polar
// method makes two normal numbers at a time; the second one is returned first.
type numpyRandom struct {
	bits  *prng.MT19937
	spare float64
	has   bool
}

func newNumpyRandom(seed uint64) *numpyRandom {
	r := &numpyRandom{bits: prng.NewMT19937()}
	r.bits.Seed(seed)
	return r
}

// uniform returns np.random.random_sample(), a number in [0, 1).
func (r *numpyRandom) uniform() float64 {
	high, low := r.bits.Uint32()>>5, r.bits.Uint32()>>6
	return (float64(high)*(1<<26) + float64(low)) / (1 << 53)
}

func (r *numpyRandom) normal() float64 {
	if r.has {
		r.has = false
		return r.spare
	}
	for {
		x := 2*r.uniform() - 1
		y := 2*r.uniform() - 1
		if s := x*x + y*y; 0 < s && s < 1 {
			f := math.Sqrt(-2 * math.Log(s) / s)
			r.spare, r.has = f*x, true
			return f * y
		}
	}
}

// randn returns np.random.randn(rows, cols).
func (r *numpyRandom) randn(rows, cols int) *mat.Dense {
	m := mat.NewDense(rows, cols, nil)
	for i := range rows {
		for j := range cols {
			m.Set(i, j, r.normal())
		}
	}
	return m
}
