package tile

import (
	"math"
	"testing"
)

func TestFinite(t *testing.T) {
	bad := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), -float32(math.NaN())}
	good := []float32{0, float32(math.Copysign(0, -1)), 1, -1, math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32, 1e-40}
	for n := range 12 {
		for start := range 2 {
			row := make([]float32, n+1)[start:][:n]
			for i := range row {
				row[i] = good[i%len(good)]
			}
			if !Finite(row) {
				t.Errorf("%v is not finite", row)
			}
			for i := range row {
				for _, x := range bad {
					old := row[i]
					if row[i] = x; Finite(row) {
						t.Errorf("%v is finite", row)
					}
					row[i] = old
				}
			}
		}
	}
}
