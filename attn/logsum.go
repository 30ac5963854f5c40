package attn

import "math"

// A LogSum is the logarithm of a sum of exp(z), as a row of an LSE tensor stores it. Ref is a
// reference near the largest z, and Log is the logarithm of the sum of exp(z - Ref). A sum without
// terms has Ref -Inf.
type LogSum struct{ Ref, Log float64 }

// readLogSum returns the LogSum in a row of an LSE tensor.
func readLogSum(row []float32) LogSum {
	if len(row) == 1 {
		return LogSum{Ref: float64(row[0])}
	}
	return LogSum{float64(row[0]), float64(row[1])}
}

// LogSum returns a row of an LSE tensor whose D is 1 or 2.
func (t *Tensor) LogSum(b, s, h int) LogSum { return readLogSum(t.Row(b, s, h)) }

// Value returns the LSE, Ref + Log. Far from 0 the sum's rounding loses digits of Log.
func (z LogSum) Value() float64 {
	if math.IsInf(z.Ref, 0) || z.Log == 0 { // -0 stays
		return z.Ref
	}
	return z.Ref + z.Log
}

// Write stores z in a row of an LSE tensor: as one number, or as Ref and Log.
//
// With two numbers, the second is Log plus what rounding Ref lost, if that is at most 64 in
// magnitude. Where rounding loses more, two stored references are equal or at least 88 apart. The
// exp of such a difference is 0 in float32 whatever the loss was, so the correction is limited and
// the second number keeps Log.
func (z LogSum) Write(row []float32) {
	if len(row) == 1 {
		row[0] = float32(z.Value())
		return
	}
	row[0], row[1] = float32(z.Ref), 0
	switch rounded := float64(row[0]); {
	case math.IsInf(rounded, 0):
	case math.IsNaN(rounded):
		row[1] = row[0]
	default:
		const most = 64
		row[1] = float32(z.Log + min(max(z.Ref-rounded, -most), most))
	}
}

// minus returns z - y.
func (z LogSum) minus(y LogSum) float64 { return (z.Ref - y.Ref) + (z.Log - y.Log) }

// logSumDim returns the D that an LSE tensor must have: 2 if it has 2, otherwise 1.
func logSumDim(t *Tensor) int {
	if t.D == 2 {
		return 2
	}
	return 1
}
