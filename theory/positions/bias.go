package positions

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"attnlab/attn"
)

// Bias returns the matrix b(j - pos_i) of a bias that depends on distance alone: each diagonal
// holds one number.
func Bias(b func(distance int) float64, nq, nk int) *mat.Dense {
	m := mat.NewDense(nq, nk, nil)
	m.Apply(func(i, j int, _ float64) float64 { return b(j - (nk - nq + i)) }, m)
	return m
}

// ALiBi returns the bias -slope |j - pos_i|, which lowers the weight of far keys on both sides;
// attn.ALiBiSlopes has a slope for each head. In a softmax it multiplies the weight of a key by
// exp(-slope) for each position of distance. So each head forgets at a rate of its own.
func ALiBi(slope float64, nq, nk int) *mat.Dense {
	// 0 - x, not -x, so that the diagonal is 0 and not -0.
	return Bias(func(distance int) float64 { return 0 - slope*math.Abs(float64(distance)) }, nq, nk)
}

// ALiBiScore returns the score q.k - slope |m-n|, which distance lowers.
func ALiBiScore(slope float64) Score {
	return func(q, k []float64, m, n int) float64 { return floats.Dot(q, k) - slope*math.Abs(float64(m-n)) }
}

// T5 returns the bias that has one learned number for each bucket of distances, by attn.T5Bucket.
// Near distances have a bucket each. Farther ones share buckets that grow logarithmically up to the
// distance most. If both is true, half of the buckets are for keys after the query.
func T5(table []float64, most int, both bool, nq, nk int) (*mat.Dense, error) {
	side := len(table)
	if both {
		side /= 2
	}
	if side < 2 || most <= side/2 {
		return nil, fmt.Errorf("positions: got %d buckets, %d on each side, up to distance %d, want two or more on each side, and a distance above half of those",
			len(table), side, most)
	}
	return Bias(func(distance int) float64 { return table[attn.T5Bucket(distance, len(table), most, both)] }, nq, nk), nil
}
