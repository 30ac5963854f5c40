package attn

import (
	"fmt"
	"math"
)

// A Count says how much work a call asks for: what any implementation must do, not what a certain
// one does.
type Count struct {
	Pairs int64 // visible (query, key) pairs, over batches and query heads
	Keys  int64 // keys that some query of their batch may see by the band, over batches and key heads
	Flop  int64 // arithmetic operations of the forward pass
	Back  int64 // arithmetic operations of the backward pass
	Bytes int64 // operands read and results written, each once, in their storage types
}

// Count counts the work of a call. With nil args every capacity is full and a bitmap shows every
// key. Extra score terms and masks add no operations; a hidden pair counts none. Softmax takes
// 2(d+d_v) operations per visible pair and query head. Linear takes 2 d_phi (d_v+1) per key and key
// head and as many per query and query head, normalised or not. Both backward passes take 2.5 times
// as many.
func (p *Problem) Count(a *Args) Count {
	if a == nil { // every capacity is full
		full := *p
		full.Ragged, full.Page, full.Mask.Bitmap, full.Mask.Block = false, 0, NoBitmap, 0
		return full.Count(&Args{Q: Tensor{S: p.SeqQ}, K: Tensor{S: p.SeqKV}})
	}
	var c Count
	queries := int64(0)
	for b := range p.Batch {
		n := a.Queries(p, b)
		pairs, keys := p.Mask.Count(a.Pos(p, b), n, a.Keys(p, b))
		if p.Mask.Bitmap == NoBitmap {
			pairs *= int64(p.HeadsQ)
		} else {
			pairs = p.shown(a, b, n)
		}
		c.Pairs += pairs
		c.Keys += int64(keys) * int64(p.HeadsKV)
		queries += int64(n) * int64(p.HeadsQ)
	}
	d, dv := int64(p.Dim), int64(p.DimV)
	c.Flop, c.Back = p.Op.entry().flop(p, &c, queries)
	_, nk := a.grid(p)
	c.Bytes = queries*(int64(p.QDim()*p.Q.Bytes())+dv*int64(p.Out.Bytes())) + c.Keys*(d+dv)*int64(p.KV.Bytes())
	for w := WantLSE; w <= WantMax; w <<= 1 {
		if p.Want&w != 0 {
			c.Bytes += 4 * queries
		}
	}
	for _, w := range [...]Want{WantWeights, WantScores} {
		if p.Want&w != 0 {
			c.Bytes += 4 * queries * int64(nk)
		}
	}
	if p.Want&WantArgMax != 0 {
		c.Bytes += 4 * queries
	}
	if p.KV == I8 {
		c.Bytes += 8 * c.Keys
	}
	t := &a.Terms
	for _, o := range [...]*Tensor{&t.Bias, &t.Relative, &t.Metric, &t.Cos, &t.Sin} {
		c.Bytes += 4 * int64(o.Size())
	}
	c.Bytes += int64(len(a.Allowed.Bool)) + 8*int64(len(a.Allowed.Words))
	return c
}

// shown is the number of pairs that band and bitmap show to n queries of batch entry b, over query
// heads.
func (p *Problem) shown(a *Args, b, n int) (pairs int64) {
	heads, share := p.HeadsQ, 1
	if a.Allowed.H == 1 {
		heads, share = min(1, heads), heads
	}
	for i := range n {
		lo, hi := a.Visible(p, b, i)
		for h := range heads {
			for j := lo; j < hi; j++ {
				if a.Shows(p, b, i, h, j) {
					pairs += int64(share)
				}
			}
		}
	}
	return pairs
}

// times is a product of two positive numbers, or the largest number there is: nobody will do so
// much work.
func times(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64/b {
		return math.MaxInt64
	}
	return a * b
}

// Count is the number of pairs that the band shows to n queries from position pos on, and the
// number of keys in the union of their intervals.
func (m Mask) Count(pos, n, nk int) (pairs int64, keys int) {
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

// Floats is the size in bytes of n[0]*n[1]*... float32 numbers, or an error when no memory can hold
// them.
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
