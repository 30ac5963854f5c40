package positions

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"attnlab/attn"
)

// Bias is the matrix b(j - pos_i) of a bias that knows nothing but distance: the same number all
// along each diagonal.
func Bias(b func(distance int) float64, nq, nk int) *mat.Dense {
	m := mat.NewDense(nq, nk, nil)
	m.Apply(func(i, j int, _ float64) float64 { return b(j - (nk - nq + i)) }, m)
	return m
}

// ALiBi is the bias -slope |j - pos_i|, which makes far keys weigh less on both sides;
// attn.ALiBiSlopes has a slope for each head. In a softmax it multiplies the weight of a key by
// exp(-slope) for each position between, which is a memory that fades at a rate of its own in each
// head.
func ALiBi(slope float64, nq, nk int) *mat.Dense {
	return Bias(func(distance int) float64 { return 0 - slope*math.Abs(float64(distance)) }, nq, nk) // 0, not -0, on the diagonal
}

// ALiBiScore is the score of contents whose distance counts against them: q.k - slope |m-n|.
func ALiBiScore(slope float64) Score {
	return func(q, k []float64, m, n int) float64 { return floats.Dot(q, k) - slope*math.Abs(float64(m-n)) }
}

// T5 is the bias that has one learned number for each bucket of distances, of attn.T5Bucket: near
// distances have a bucket each, far ones share those that grow with the logarithm, up to the
// distance most. With both, half of the buckets are for keys after the query.
func T5(table []float64, most int, both bool, nq, nk int) (*mat.Dense, error) {
	side := len(table)
	if both {
		side /= 2
	}
	if side < 2 || most <= side/2 {
		return nil, fmt.Errorf("positions: %d buckets, %d a side, up to distance %d: want two a side or more, and a distance that half of them do not reach",
			len(table), side, most)
	}
	return Bias(func(distance int) float64 { return table[attn.T5Bucket(distance, len(table), most, both)] }, nq, nk), nil
}
