package attn

import (
	"fmt"
	"math"
)

// A Count says how much work a call asks for: what any implementation must do, not what a certain one does.
type Count struct {
	Pairs int64 // visible (query, key) pairs, over batches and query heads
	Keys  int64 // keys that some query of their batch may see by the band, over batches and key heads
	Flop  int64 // of the forward pass; the backward pass takes 2.5 times as many
	Bytes int64 // operands read and results written, each once, in their storage types
}

// Count counts the work of a call. With nil args every capacity is full and every element of a bitmap shows its key. Extra score terms and
// masks add no operations; a hidden pair counts none. Softmax takes 2(d+d_v) operations per visible pair and query head; linear takes
// 2 d_phi (d_v+1) per key and key head and as many per query and query head, normalised or not.
func (p *Problem) Count(a *Args) Count {
	if a == nil {
		a = &Args{Q: Tensor{S: p.SeqQ}, K: Tensor{S: p.SeqKV}}
	}
	var c Count
	for b := range p.Batch {
		pairs, keys := p.Mask.count(a.Pos(p, b), a.Q.S, a.Keys(b))
		c.Keys += int64(keys) * int64(p.HeadsKV)
		if a.Allowed.Bool == nil {
			c.Pairs += pairs * int64(p.HeadsQ)
			continue
		}
		for i := range a.Q.S {
			lo, hi := a.Visible(p, b, i)
			for h := range p.HeadsQ {
				off, step := a.Allowed.Offset(b, i, h)
				for j := lo; j < hi; j++ {
					if a.Allowed.Bool[off+j*step] {
						c.Pairs++
					}
				}
			}
		}
	}
	queries := int64(p.Batch) * int64(a.Q.S) * int64(p.HeadsQ)
	d, dv := int64(p.Dim), int64(p.DimV)
	if p.Op == OpLinear {
		c.Flop = times(2*d*(dv+1), c.Keys+queries)
	} else {
		c.Flop = times(2*(d+dv), c.Pairs)
	}
	c.Bytes = queries*(d*width(p.Q)+dv*width(p.Out)) + c.Keys*(d+dv)*width(p.KV)
	for w := WantLSE; w <= WantMax; w <<= 1 {
		if p.Want&w != 0 {
			c.Bytes += 4 * queries
		}
	}
	if p.Want&WantWeights != 0 {
		c.Bytes += 4 * queries * int64(a.K.S)
	}
	c.Bytes += int64(a.Terms.Bias.Size())*4 + int64(len(a.Allowed.Bool))
	return c
}

// times is a product of two positive numbers, or the largest number there is: nobody will do so much work.
func times(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64/b {
		return math.MaxInt64
	}
	return a * b
}

// count is the number of pairs that the band shows to n queries from position pos on, and the number of keys in the union of their intervals.
func (m Mask) count(pos, n, nk int) (pairs int64, keys int) {
	if !m.Band {
		if n > 0 {
			keys = nk
		}
		return int64(n) * int64(nk), keys
	}
	// the ends of the intervals move up one key a query, between 0 and nk
	ends, begins := int64(n)*int64(nk), int64(0)
	first, last := 0, n-1 // queries whose interval is not empty
	if m.Right != Unbounded {
		ends = staircase(pos+m.Right+1, n, nk)
		first = max(first, -(pos + m.Right))
	}
	if m.Left != Unbounded {
		begins = staircase(pos-m.Left, n, nk)
		last = min(last, nk-1+m.Left-pos)
	}
	if first <= last {
		lo, _ := m.Keys(pos+first, nk)
		_, hi := m.Keys(pos+last, nk)
		keys = hi - lo
	}
	return ends - begins, keys
}

// staircase is the sum of from+i, held between 0 and top, for i from 0 to n-1.
func staircase(from, n, top int) int64 {
	low := min(max(-from, 0), n)                   // steps at 0
	high := min(max(n-max(top-from, 0), 0), n-low) // steps at top
	rise := int64(n - low - high)
	return rise*int64(from+low) + rise*(rise-1)/2 + int64(high)*int64(top)
}

func width(t DType) int64 { return [...]int64{F32: 4, F16: 2, BF16: 2, I8: 1}[t] }

// Floats is the size in bytes of n[0]*n[1]*... float32 numbers, or an error when no memory can hold them.
func Floats(n ...int) (int64, error) {
	size := int64(4)
	for _, k := range n {
		if k > 0 && size > (1<<46)/int64(k) {
			return 0, fmt.Errorf("needs %v float32 numbers of scratch, more than any memory", n)
		}
		size *= int64(k)
	}
	return size, nil
}
