package attn

import (
	"fmt"
	"math"
)

// Merge combines the attention of the same queries over two disjoint sets of keys: o and lse become
// the result over both sets. Outputs have shape [batch, query, head, d], LSE tensors [batch, query,
// head, 1 or 2]. A side without visible keys (LSE -Inf) changes no bit of the other. Merge is
// commutative, and associative up to rounding.
//
// The weight of a side is exp of its LSE, so an error in an LSE is a relative error of the output.
// One float32 loses the log of the sum where scores are far from 0. An LSE tensor with D = 1 may
// therefore hold only numbers up to 2^12 in magnitude, infinities and NaN. Merge panics on others
// before it writes anything. With D = 2 it accepts any score.
func Merge(o, lse, o2, lse2 Tensor) {
	if err := mergeable(&o, &lse, &o2, &lse2); err != nil {
		panic(fmt.Errorf("attn.Merge: %w", err))
	}
	if err := mergeableRows(&lse, &lse2); err != nil {
		panic(fmt.Errorf("attn.Merge: %w", err))
	}
	for b := range o.B {
		for s := range o.S {
			for h := range o.H {
				to := lse.Row(b, s, h)
				z := mergeRow(o.Row(b, s, h), o2.Row(b, s, h), readLogSum(to), readLogSum(lse2.Row(b, s, h)))
				z.Write(to)
			}
		}
	}
}

func mergeRow(x, y []float32, zx, zy LogSum) LogSum {
	switch lx, ly := zx.Value(), zy.Value(); {
	case math.IsInf(ly, -1):
		return zx
	case math.IsInf(lx, -1):
		copy(x, y)
		return zy
	case math.IsInf(max(lx, ly), 1) && lx != ly: // one infinite score takes all the weight
		if ly > lx {
			copy(x, y)
			return zy
		}
		return zx
	}
	top := zx // with two infinite scores Inf - Inf gives the NaN that the row must have
	if d := zy.minus(zx); d > 0 || d == 0 && zy.Ref > zx.Ref {
		top = zy
	}
	wx, wy := math.Exp(zx.minus(top)), math.Exp(zy.minus(top))
	for i := range x {
		x[i] = float32((wx*float64(x[i]) + wy*float64(y[i])) / (wx + wy))
	}
	log := top.Log + math.Log(wx+wy)
	if math.IsNaN(log) {
		return LogSum{log, log}
	}
	return LogSum{top.Ref, log}
}

// mergeable reports what is wrong with the shapes of the two sides.
func mergeable(o, lse, o2, lse2 *Tensor) error {
	for _, t := range [...]struct {
		name string
		t    *Tensor
		d    int
	}{{"o", o, o.D}, {"lse", lse, logSumDim(lse)}, {"o2", o2, o.D}, {"lse2", lse2, logSumDim(lse2)}} {
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
	return o.disjoint("o", lse, "lse")
}

// farLSE is the largest magnitude of an LSE that one float32 holds precisely enough to merge: its
// last place is 2^-12 there.
const farLSE = 1 << 12

// mergeableRows returns an error for the first row whose LSE is too far from 0 for one float32, in
// either side or where the result is stored.
func mergeableRows(lse, lse2 *Tensor) error {
	if lse.D == 2 && lse2.D == 2 {
		return nil
	}
	for b := range lse.B {
		for s := range lse.S {
			for h := range lse.H {
				for _, t := range [...]struct {
					name      string
					t, stored *Tensor
				}{{"lse", lse, lse}, {"lse2", lse2, lse2}, {"lse2", lse2, lse}} {
					x := math.Abs(t.t.LogSum(b, s, h).Value())
					if t.stored.D == 1 && x > farLSE && !math.IsInf(x, 1) {
						return fmt.Errorf("%s[batch %d, query %d, head %d]: LSE %v: one float32 loses the log of the sum beyond ±%d, want LSE tensors with D = 2",
							t.name, b, s, h, t.t.LogSum(b, s, h).Value(), farLSE)
					}
				}
			}
		}
	}
	return nil
}
