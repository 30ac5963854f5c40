package attn

import (
	"fmt"
	"math"
)

// Merge joins the attention of one set of queries over two disjoint sets of keys: o and lse, of shape [batch, query, head, d] and
// [batch, query, head, 1], absorb the second part. A part without visible keys (LSE -Inf) changes no bit. Merge is commutative, and
// associative up to rounding.
func Merge(o, lse, o2, lse2 Tensor) {
	if err := mergeable(&o, &lse, &o2, &lse2); err != nil {
		panic(fmt.Errorf("attn.Merge: %w", err))
	}
	for b := range o.B {
		for s := range o.S {
			for h := range o.H {
				x, y := o.Row(b, s, h), o2.Row(b, s, h)
				l := lse.Row(b, s, h)
				l[0] = mergeRow(x, y, float64(l[0]), float64(lse2.Row(b, s, h)[0]))
			}
		}
	}
}

func mergeRow(x, y []float32, lx, ly float64) float32 {
	switch m := max(lx, ly); {
	case math.IsInf(ly, -1):
		return float32(lx)
	case math.IsInf(lx, -1):
		copy(x, y)
		return float32(ly)
	case math.IsInf(m, 1) && lx != ly: // one infinite score takes all the weight
		if ly > lx {
			copy(x, y)
		}
		return float32(m)
	default: // two infinite scores make Inf-Inf, which is the NaN they should be
		wx, wy := math.Exp(lx-m), math.Exp(ly-m)
		for i := range x {
			x[i] = float32((wx*float64(x[i]) + wy*float64(y[i])) / (wx + wy))
		}
		return float32(m + math.Log(wx+wy))
	}
}

func mergeable(o, lse, o2, lse2 *Tensor) error {
	for _, t := range [...]struct {
		name string
		t    *Tensor
		d    int
	}{{"o", o, o.D}, {"lse", lse, 1}, {"o2", o2, o.D}, {"lse2", lse2, 1}} {
		if err := t.t.fits(t.name, F32, o.B, o.S, o.H, t.d); err != nil {
			return err
		}
	}
	if err := o.writable("o"); err != nil {
		return err
	}
	if err := lse.writable("lse"); err != nil {
		return err
	}
	return o.apart("o", lse, "lse")
}
