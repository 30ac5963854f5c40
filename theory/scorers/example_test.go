package scorers_test

import (
	"fmt"

	"gonum.org/v1/gonum/mat"

	"attnlab/attn"
	"attnlab/theory/scorers"
)

// The tutorial's first worked example, step by step: scores, weights and output.
func Example() {
	q := mat.NewDense(2, 2, []float64{1, 0, 0, 1})
	k := mat.NewDense(3, 2, []float64{1, 0, 0, 1, 1, 1})
	v := mat.NewDense(3, 2, []float64{2, 0, 0, 2, 1, 1})
	d := scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{})
	fmt.Printf("S = %.3f\n", mat.Formatted(d.Scores, mat.Prefix("    ")))
	fmt.Printf("Z = %.3f\n", d.Partition())
	fmt.Printf("A = %.3f\n", mat.Formatted(d.Weights, mat.Prefix("    ")))
	fmt.Printf("O = %.3f\n", mat.Formatted(d.Output, mat.Prefix("    ")))
	// Output:
	// S = ⎡0.707  0.000  0.707⎤
	//     ⎣0.000  0.707  0.707⎦
	// Z = [5.056 5.056]
	// A = ⎡0.401  0.198  0.401⎤
	//     ⎣0.198  0.401  0.401⎦
	// O = ⎡1.203  0.797⎤
	//     ⎣0.797  1.203⎦
}

// The paper's usage with a custom metric: scores are q_a g_ab k_b.
func ExampleBilinear() {
	q := mat.NewDense(2, 2, []float64{1, 0, 0, 1})
	k := mat.NewDense(3, 2, []float64{1, 0, 0, 1, 1, 1})
	g := mat.NewSymDense(2, []float64{2, .5, .5, 1})
	fmt.Println(mat.Formatted(scorers.Bilinear{M: g}.Scores(q, k)))
	// Output:
	// ⎡  2  0.5  2.5⎤
	// ⎣0.5    1  1.5⎦
}

// The notes count additive attention among the bilinear forms. It is not one: twice the query does
// not give twice the score.
func ExampleAdditive() {
	s := scorers.Additive{U: mat.NewDense(1, 1, []float64{1}), W: mat.NewDense(1, 1, []float64{1}), V: []float64{1}}
	k := mat.NewDense(1, 1, []float64{0})
	for _, q := range []float64{1, 2} {
		fmt.Printf("%.4f\n", s.Scores(mat.NewDense(1, 1, []float64{q}), k).At(0, 0))
	}
	// Output:
	// 0.7616
	// 0.9640
}

// The paper's listing with a mask. A row that sees no key is zero.
func ExampleAttend_mask() {
	q := mat.NewDense(2, 2, []float64{1, 0, 0, 1})
	k := mat.NewDense(3, 2, []float64{1, 0, 0, 1, 1, 1})
	v := mat.NewDense(3, 2, []float64{2, 0, 0, 2, 1, 1})
	mask := [][]bool{{true, false, true}, {false, false, false}}
	d := scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{Mask: func(i, j int) bool { return mask[i][j] }})
	fmt.Printf("A = %v\n", mat.Formatted(d.Weights, mat.Prefix("    ")))
	fmt.Printf("O = %v\n", mat.Formatted(d.Output, mat.Prefix("    ")))
	// Output:
	// A = ⎡0.5    0  0.5⎤
	//     ⎣  0    0    0⎦
	// O = ⎡1.5  0.5⎤
	//     ⎣  0    0⎦
}

// In the limit of low temperature, tied scores share the weight.
func ExampleWeights() {
	s := mat.NewDense(1, 3, []float64{2, 2, 0})
	for _, t := range []float64{1, .1, attn.Frozen} {
		fmt.Printf("%.4f\n", mat.Formatted(scorers.Weights(s, scorers.Options{Temp: t})))
	}
	// Output:
	// [0.4683  0.4683  0.0634]
	// [0.5000  0.5000  0.0000]
	// [0.5000  0.5000  0.0000]
}
