package attn

import (
	"fmt"
	"math"
)

// ALiBiSlopes returns the slopes of attention with linear biases for n = heads heads. They are
// 2^(-8h/n) for h = 1..n if n is a power of two. Otherwise they are the slopes of the largest power
// of two below n, followed by every other slope of twice that power.
func ALiBiSlopes(heads int) []float32 {
	slopes := make([]float32, 0, max(heads, 0))
	n := 1
	for 2*n <= heads {
		n *= 2
	}
	for h := 1; h <= n && len(slopes) < heads; h++ {
		slopes = append(slopes, float32(math.Exp2(-8*float64(h)/float64(n))))
	}
	for h := 1; len(slopes) < heads; h += 2 {
		slopes = append(slopes, float32(math.Exp2(-4*float64(h)/float64(n))))
	}
	return slopes
}

// T5Bucket returns the bucket of a key that is distance keys after the query, or before it if
// distance is negative. With both, each side has half of the buckets. Without both, all keys after
// the query share bucket 0 with the query's own key. The first half of a side's buckets hold one
// distance each. The others grow with the logarithm; the last one holds the distance most and all
// beyond.
func T5Bucket(distance, buckets, most int, both bool) int {
	first, back := 0, -distance
	if both {
		buckets /= 2
		if distance > 0 {
			first, back = buckets, distance
		}
	}
	back = max(back, 0)
	exact := buckets / 2
	if back < exact {
		return first + back
	}
	far := float64(exact) + math.Log(float64(back)/float64(exact))/math.Log(float64(most)/float64(exact))*float64(buckets-exact)
	return first + min(int(far), buckets-1)
}

// T5Bias returns the operand Bias of n_q queries, the first at position pos, and n_k keys. table
// holds one learned number for each bucket and head, [bucket][head].
func T5Bias(table []float32, heads, buckets, most int, both bool, pos, nq, nk int) (Tensor, error) {
	if len(table) != buckets*heads {
		return Tensor{}, fmt.Errorf("t5: a table of %d numbers for %d buckets and %d heads, want one for each bucket and head", len(table), buckets, heads)
	}
	if least := 2; buckets < least || both && buckets < 2*least || most <= buckets/2 {
		return Tensor{}, fmt.Errorf("t5: %d buckets up to distance %d: want at least 2 buckets for each side, and a distance above %d, half of the buckets", buckets, most, buckets/2)
	}
	t := New(BHSD, 1, nq, heads, nk)
	for i := range nq {
		for j := range nk {
			bucket := T5Bucket(j-pos-i, buckets, most, both)
			for h := range heads {
				t.Row(0, i, h)[j] = table[bucket*heads+h]
			}
		}
	}
	return t, nil
}

// FreeEnergy returns -T log Z of a row, given its LSE, log Z.
func FreeEnergy(lse float32, temp float64) float32 { return float32(-temp * float64(lse)) }

// EffectiveKeys returns the number of keys that would have the same entropy if they shared the
// weight evenly. It is between 1 and the number of visible keys.
func EffectiveKeys(entropy float32) float32 { return float32(math.Exp(float64(entropy))) }
