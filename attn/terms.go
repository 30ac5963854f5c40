package attn

import (
	"fmt"
	"math"
)

// ALiBiSlopes returns the slopes of attention with linear biases for so many heads: 2^(-8h/n) for h
// = 1..n if n is a power of two; otherwise those of the largest power of two below n, followed by
// every other slope of twice that power.
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

// T5Bucket is the bucket of a key that stands distance keys after the query (before it, if
// negative). Without both sides, keys after the query share bucket 0 with its own; with both, half
// of the buckets is for each side. The first half of a side's buckets are exact distances, the
// others grow with the logarithm, up to the distance most and beyond.
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

// T5Bias makes the operand Bias of n_q queries, the first one at position pos, and n_k keys from a
// learned table of one number for each bucket and head, [bucket][head].
func T5Bias(table []float32, heads, buckets, most int, both bool, pos, nq, nk int) (Tensor, error) {
	if len(table) != buckets*heads {
		return Tensor{}, fmt.Errorf("t5: a table of %d numbers for %d buckets and %d heads", len(table), buckets, heads)
	}
	if least := 2; buckets < least || both && buckets < 2*least || most <= buckets/2 {
		return Tensor{}, fmt.Errorf("t5: %d buckets up to distance %d: want two a side or more, and a distance that half of them do not reach", buckets, most)
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

// FreeEnergy is -T log Z of a row, from its LSE.
func FreeEnergy(lse float32, temp float64) float32 { return float32(-temp * float64(lse)) }

// EffectiveKeys is the number of keys that would share the weight evenly at the same entropy: from
// 1 to the number of visible keys.
func EffectiveKeys(entropy float32) float32 { return float32(math.Exp(float64(entropy))) }
