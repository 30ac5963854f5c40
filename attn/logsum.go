package attn

import "math"

// A LogSum is the logarithm of a sum of exponentials, as a row of an LSE tensor holds it: Ref is
// the reference that scores were taken from, Log the logarithm of the sum of exp(z - Ref). A sum of
// no terms has Ref -Inf.
type LogSum struct{ Ref, Log float64 }

// readLogSum reads a row of an LSE tensor.
func readLogSum(row []float32) LogSum {
	if len(row) == 1 {
		return LogSum{Ref: float64(row[0])}
	}
	return LogSum{float64(row[0]), float64(row[1])}
}

// LogSum reads a row of an LSE tensor whose D is 1 or 2.
func (t *Tensor) LogSum(b, s, h int) LogSum { return readLogSum(t.Row(b, s, h)) }

// Value returns Ref + Log: the LSE. Far from 0, its rounding loses digits of Log.
func (z LogSum) Value() float64 {
	if math.IsInf(z.Ref, 0) || z.Log == 0 { // -0 stays
		return z.Ref
	}
	return z.Ref + z.Log
}

// Write stores the logarithm in a row of an LSE tensor: as one number, or as a reference and the
// logarithm of the sum over it.
//
// The second number makes up for what rounding the reference loses, up to 64. Where more is lost,
// references are 88 or more apart if they differ at all. exp of minus that is 0 in float32,
// whatever the difference is, and the second number must keep the logarithm of the sum.
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

// over returns how much larger z is than y.
func (z LogSum) over(y LogSum) float64 { return (z.Ref - y.Ref) + (z.Log - y.Log) }

// logSumDim returns the D that an LSE tensor must have: its own, if that is 1 or 2.
func logSumDim(t *Tensor) int {
	if t.D == 2 {
		return 2
	}
	return 1
}
