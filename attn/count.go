package attn

import (
	"fmt"
	"math"
)

// A Count is the amount of work in a call: what every implementation must do, not what one does.
type Count struct {
	Pairs int64 // visible (query, key) pairs, over batch entries and query heads
	Keys  int64 // keys that the band shows to any query, over batch entries and state heads
	Flop  int64 // arithmetic operations of the forward pass
	Back  int64 // arithmetic operations of the backward pass
	Bytes int64 // size of all operands and results as stored, each counted once
}

// Count returns the work of a call. With nil args every capacity is full and a bitmap shows every
// key. Score terms and masks add no operations, and a hidden pair has none. Softmax takes 2(d+d_v)
// operations for each visible pair and query head. Linear takes 2 d d_v for each key and state
// head, as many again if it has the delta rule, and 2 d d_v for each query and output head. A
// normalised problem has d_v+1 in place of d_v. Gates and norms add none. Both backward passes take
// 2.5 times as many.
func (p *Problem) Count(a *Args) Count {
	if a == nil { // every capacity is full
		full := *p
		full.Ragged, full.Page, full.Mask.Bitmap, full.Mask.Block = false, 0, NoBitmap, 0
		return full.Count(&Args{Q: Tensor{S: p.SeqQ}, K: Tensor{S: p.SeqKV}})
	}
	var c Count
	queries, shown := int64(0), int64(0)
	for b := range p.Batch {
		n := a.Queries(p, b)
		pairs, keys := p.Mask.Count(a.Pos(p, b), n, a.Keys(p, b))
		if p.Mask.Bitmap == NoBitmap {
			pairs *= int64(p.OutHeads())
		} else {
			pairs = p.shown(a, b, n)
		}
		c.Pairs += pairs
		c.Keys += int64(keys) * int64(p.StateHeads())
		shown += int64(keys)
		queries += int64(n)
	}
	d, dv := int64(p.Dim), int64(p.DimV)
	outs := queries * int64(p.OutHeads())
	c.Flop, c.Back = p.Op.entry().flop(p, &c, outs)
	_, nk := a.grid(p)
	rows := func(n int64, heads int, width int64, t DType) int64 {
		return n * int64(heads) * width * int64(t.Bytes())
	}
	c.Bytes = rows(queries, p.HeadsQ, int64(p.QDim()), p.Q) + rows(queries, p.OutHeads(), dv, p.Out) +
		rows(shown, p.HeadsKV, d, p.KV) + rows(shown, p.ValueHeads(), dv, p.KV)
	for w := WantLSE; w <= WantMax; w <<= 1 {
		if p.Want&w != 0 {
			c.Bytes += 4 * outs
		}
	}
	for _, w := range [...]Want{WantWeights, WantScores} {
		if p.Want&w != 0 {
			c.Bytes += 4 * outs * int64(nk)
		}
	}
	if p.Want&WantArgMax != 0 {
		c.Bytes += 4 * outs
	}
	if p.KV == I8 {
		c.Bytes += rows(shown, p.HeadsKV+p.ValueHeads(), 1, F32) // scales
	}
	t := &a.Terms
	for _, o := range [...]*Tensor{&t.Bias, &t.Relative, &t.Metric, &t.Cos, &t.Sin, &t.Decay, &t.Beta} {
		c.Bytes += 4 * int64(min(o.Size(), o.span())) // a stride of 0 repeats what is stored
	}
	c.Bytes += 4 * int64(len(a.StateIn)+len(a.StateOut))
	c.Bytes += int64(len(a.Allowed.Bool)) + 8*int64(len(a.Allowed.Words))
	return c
}

// shown returns the number of pairs that band and bitmap show to n queries of batch entry b, over
// query heads.
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

// times returns the product of two positive numbers, limited to the largest int64.
func times(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64/b {
		return math.MaxInt64
	}
	return a * b
}

// Count returns the number of pairs that the band shows to n queries, the first at position pos,
// and the number of keys in the union of their intervals.
func (m Mask) Count(pos, n, nk int) (pairs int64, keys int) {
	if !m.Band {
		if n > 0 {
			keys = nk
		}
		return int64(n) * int64(nk), keys
	}
	// From each query to the next, both ends of the interval move up one key, within 0..nk.
	ends, begins := int64(n)*int64(nk), int64(0)
	first, last := 0, n-1 // the queries whose interval is not empty
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

// staircase returns the sum of from+i over i = 0..n-1, each addend limited to 0..top.
func staircase(from, n, top int) int64 {
	low := min(max(-from, 0), n)                   // addends that are 0
	high := min(max(n-max(top-from, 0), 0), n-low) // addends that are top
	rise := int64(n - low - high)
	return rise*int64(from+low) + rise*(rise-1)/2 + int64(high)*int64(top)
}

// Floats returns the size in bytes of n[0]*n[1]*... float32 numbers. It returns an error if no
// memory can hold them.
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
