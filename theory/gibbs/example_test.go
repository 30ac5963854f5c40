package gibbs_test

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"

	"attnlab/theory/gibbs"
)

// The stable softmax of the lesson.
func ExampleSoftmax() {
	hidden := math.Inf(-1)
	fmt.Printf("%.8f\n", gibbs.Softmax([]float64{1, 2, 3, 4, 1}, 1))
	fmt.Printf("%.4f\n", gibbs.Softmax([]float64{1001, 1002, 1003}, 1)) // no overflow
	fmt.Printf("%.2f\n", gibbs.Softmax([]float64{2, hidden, 2}, 1))     // one score is hidden
	fmt.Printf("%.2f\n", gibbs.Softmax([]float64{hidden, hidden}, 1))   // all scores are hidden
	// Output:
	// [0.03106277 0.08443737 0.22952458 0.62391250 0.03106277]
	// [0.0900 0.2447 0.6652]
	// [0.50 0.00 0.50]
	// [0.00 0.00]
}

// The paper's attention_temperature divides scores by a temperature and takes a softmax of each
// row.
func ExampleSoftmaxRows() {
	s := mat.NewDense(2, 3, []float64{1, 0, 1, 0, 1, 1})
	for _, t := range []float64{0, 0.5, 1, math.Inf(1)} {
		fmt.Printf("T = %-4v %.4f\n", t, gibbs.SoftmaxRows(s, t).RawMatrix().Data)
	}
	// Output:
	// T = 0    [0.5000 0.0000 0.5000 0.0000 0.5000 0.5000]
	// T = 0.5  [0.4683 0.0634 0.4683 0.0634 0.4683 0.4683]
	// T = 1    [0.4223 0.1554 0.4223 0.1554 0.4223 0.4223]
	// T = +Inf [0.3333 0.3333 0.3333 0.3333 0.3333 0.3333]
}

// The paper's attention_entropy and normalized_entropy. They need no small number inside the
// logarithm.
func ExampleEntropyRows() {
	a := mat.NewDense(3, 4, []float64{
		.25, .25, .25, .25,
		.7, .1, .1, .1,
		0, 1, 0, 0,
	})
	fmt.Printf("%.4f\n", gibbs.EntropyRows(a))
	fmt.Printf("%.4f\n", gibbs.NormalizedEntropyRows(a))
	fmt.Printf("%.4f\n", gibbs.EffectiveStatesRows(a))
	// Output:
	// [1.3863 0.9404 0.0000]
	// [1.0000 0.6784 0.0000]
	// [4.0000 2.5611 1.0000]
}

// The table of temperatures of the tutorial and the paper, with the correct figures.
func ExampleSweep() {
	fmt.Print(gibbs.Sweep([]float64{2, 1, 0}, 0, 0.25, 0.5, 1, 2, math.Inf(1)))
	// Output:
	// T       p0       p1       p2        H  H/log n    n_eff         F       <E>        C
	//     0 1.000000 0.000000 0.000000 0.000000 0.000000 1.000000 -2.000000 -2.000000 0.000000
	//  0.25 0.981690 0.017980 0.000329 0.093035 0.084684 1.097500 -2.004620 -1.981361 0.303203
	//   0.5 0.866813 0.117310 0.015876 0.441057 0.401468 1.554350 -2.071466 -1.850937 0.634383
	//     1 0.665241 0.244728 0.090031 0.832396 0.757679 2.298819 -2.407606 -1.575210 0.424405
	//     2 0.506480 0.307196 0.186324 1.020191 0.928618 2.773725 -3.360539 -1.320157 0.147576
	//  +Inf 0.333333 0.333333 0.333333 1.098612 1.000000 3.000000      -Inf -1.000000 0.000000
}

// The variational principle: the weights that minimise energy minus temperature times entropy are a
// softmax.
func ExampleMinimize() {
	s, t := []float64{2, 1, 0}, 0.5
	m, err := gibbs.Minimize(s, t, gibbs.Descent{From: []float64{.1, .1, .8}})
	fmt.Printf("%.6f at %.6f, %v\n", m.Weights, m.Value, err)
	fmt.Printf("%.6f at %.6f\n", gibbs.Softmax(s, t), gibbs.FreeEnergy(s, t))
	// Output:
	// [0.866813 0.117310 0.015876] at -2.071466, <nil>
	// [0.866813 0.117310 0.015876] at -2.071466
}

// GumbelMax draws from the weights without normalising them: it adds noise to the scores and takes
// the largest.
func ExampleGumbelMax() {
	s, r := []float64{math.Log(6), math.Log(3), 0}, rand.New(rand.NewPCG(1, 2))
	counts := make([]float64, 3)
	for range 100000 {
		counts[gibbs.GumbelMax(s, 1, r)] += 1. / 100000
	}
	fmt.Printf("drawn   %.2f\nweights %.2f\n", counts, gibbs.Softmax(s, 1))
	// Output:
	// drawn   [0.60 0.30 0.10]
	// weights [0.60 0.30 0.10]
}

// The lesson's curves: the weight that softmax gives to a score of 3 beside another score.
func ExampleCurve() {
	others := []float64{-2, 0, 2}
	for _, t := range []float64{0.5, 1, 2} {
		c := gibbs.Curve(others, func(x float64) []float64 { return []float64{3, x} }, t)
		fmt.Printf("T = %-3v %.4f\n", t, mat.Col(nil, 0, c))
	}
	// Output:
	// T = 0.5 [1.0000 0.9975 0.8808]
	// T = 1   [0.9933 0.9526 0.7311]
	// T = 2   [0.9241 0.8176 0.6225]
}
