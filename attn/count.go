package attn

import "fmt"

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
		first, last := a.K.S, 0 // the union of the bands of this batch's queries
		for i := range a.Q.S {
			lo, hi := a.Visible(p, b, i)
			if lo < hi {
				first, last = min(first, lo), max(last, hi)
			}
			if a.Allowed.Bool == nil {
				c.Pairs += int64(hi-lo) * int64(p.HeadsQ)
				continue
			}
			for h := range p.HeadsQ {
				off, step := a.Allowed.Offset(b, i, h)
				for j := lo; j < hi; j++ {
					if a.Allowed.Bool[off+j*step] {
						c.Pairs++
					}
				}
			}
		}
		c.Keys += int64(max(last-first, 0)) * int64(p.HeadsKV)
	}
	queries := int64(p.Batch) * int64(a.Q.S) * int64(p.HeadsQ)
	d, dv := int64(p.Dim), int64(p.DimV)
	if p.Op == OpLinear {
		c.Flop = 2 * d * (dv + 1) * (c.Keys + queries)
	} else {
		c.Flop = 2 * (d + dv) * c.Pairs
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
