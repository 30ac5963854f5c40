package nn

import (
	"math"
	"testing"

	"attnlab/kernels/asm"
)

// TestMoments checks rows that a reader can verify. The rows 1, 3 and 5, 9 have means 2 and 7 and
// variances 1 and 4; the means of their squares are 5 and 53.
func TestMoments(t *testing.T) {
	x := Mat{[]float32{1, 3, 5, 9}, 2, 2, 2}
	for _, test := range []struct {
		centred       bool
		mean, squares []float64
	}{{true, []float64{2, 7}, []float64{1, 4}}, {false, []float64{0, 0}, []float64{5, 53}}} {
		n := NewLayerNorm("n", 2)
		n.Centred, n.Eps = test.centred, 5
		p, _, err := n.Plan(On{Products: NewMultiplier(asm.Levels()[0].Ops, nil)}, Shape{1, 3, 2})
		if err != nil {
			t.Fatal(err)
		}
		p.Forward(x)
		mean, inverse := p.(*NormPass).Moments()
		if len(mean) != 2 || len(inverse) != 2 {
			t.Fatalf("centred %v: %d means and %d inverses of 2 rows", test.centred, len(mean), len(inverse))
		}
		for i := range mean {
			if want := 1 / math.Sqrt(test.squares[i]+5); mean[i] != test.mean[i] || math.Abs(inverse[i]-want) > 1e-15 {
				t.Errorf("centred %v, row %d: mean %v and inverse %v, want %v and %v", test.centred, i, mean[i], inverse[i], test.mean[i], want)
			}
		}
	}
}
