package streaming_test

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"attnlab/theory/streaming"
)

// The first row of the worked example, key by key. After each key, the output is the attention to
// the keys so far.
func ExampleState() {
	x := streaming.NewState(2)
	c := 1 / math.Sqrt2
	values := mat.NewDense(3, 2, []float64{2, 0, 0, 2, 1, 1})
	for j, score := range []float64{c, 0, c} {
		x.Push([]float64{score}, values.Slice(j, j+1, 0, 2))
		fmt.Printf("m %.6f  l %.6f  output %.6f\n", x.Max, x.Sum, x.Output())
	}
	fmt.Printf("LSE %.6f\n", x.LSE())
	// Output:
	// m 0.707107  l 1.000000  output [2.000000 0.000000]
	// m 0.707107  l 1.493069  output [1.339523 0.660477]
	// m 0.707107  l 2.493069  output [1.203336 0.796664]
	// LSE 1.620621
}

// Two machines process half of the keys each.
func ExampleMerge() {
	here, there := streaming.NewState(1), streaming.NewState(1)
	here.Push([]float64{0, 0}, mat.NewDense(2, 1, []float64{3, 6}))
	there.Push([]float64{math.Log(2)}, mat.NewDense(1, 1, []float64{9}))
	both := streaming.Merge(here, there)
	fmt.Printf("%.4f\n", both.Output())
	// Output:
	// [6.7500]
}

// The worked example in blocks of two, with the gradients of half the square of its output. The
// gradient by the output is the output itself.
func ExampleAttend() {
	q := mat.NewDense(2, 2, []float64{1, 0, 0, 1})
	k := mat.NewDense(3, 2, []float64{1, 0, 0, 1, 1, 1})
	v := mat.NewDense(3, 2, []float64{2, 0, 0, 2, 1, 1})
	o := streaming.Options{Block: 2}
	out, lse := streaming.Attend(q, k, v, o)
	fmt.Printf("%.8f\n%.8f\n", mat.Formatted(out), lse)
	dq, _, _ := streaming.Backward(q, k, v, out, lse, out, o)
	fmt.Printf("%.8f\n", mat.Formatted(dq))
	// Output:
	// ⎡1.20333628  0.79666372⎤
	// ⎣0.79666372  1.20333628⎦
	// [1.62062114 1.62062114]
	// ⎡ 0.06843686  -0.09189051⎤
	// ⎣-0.09189051   0.06843686⎦
}
