package regression_test

import (
	"fmt"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"attnlab/theory/regression"
)

// The first worked example of the source documents.
func example() (q, k, v *mat.Dense) {
	q = mat.NewDense(2, 2, []float64{1, 0, 0, 1})
	k = mat.NewDense(3, 2, []float64{1, 0, 0, 1, 1, 1})
	v = mat.NewDense(3, 2, []float64{2, 0, 0, 2, 1, 1})
	return q, k, v
}

// Attention as a regression, beside a Gaussian's: the Gaussian gives the long key less weight.
func ExampleKernel_Regress() {
	q, k, v := example()
	fmt.Printf("exp(q.k/sqrt(d)): %.4f\n", regression.ExpDot(0).Regress(q, k, v).RawRowView(0))
	fmt.Printf("weights           %.4f\n", regression.ExpDot(0).Weights(q, k).RawRowView(0))
	fmt.Printf("Gaussian          %.4f\n", regression.Gaussian(1.1892).Weights(q, k).RawRowView(0))
	// Output:
	// exp(q.k/sqrt(d)): [1.2033 0.7967]
	// weights           [0.4011 0.1978 0.4011]
	// Gaussian          [0.4555 0.2246 0.3199]
}

// The lesson's listing, phi(Q) (phi(K)^T V) with its eps. It says elu+1 and computes relu+1, which
// differ for negative keys.
func ExampleByName() {
	q, k, v := example()
	k.Scale(-1, k)
	for _, name := range []string{"elu+1", "lesson"} {
		l, err := regression.ByName(name)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%-7s phi(-1) = %.6f, O_0 = %.6f\n", name, l.Feature.Features([]float64{-1})[0], l.Attend(q, k, v).RawRowView(0))
	}
	// Output:
	// elu+1   phi(-1) = 0.367879, O_0 = [0.878608 1.121392]
	// lesson  phi(-1) = 1.000000, O_0 = [1.000000 1.000000]
}

// Decoding in constant memory: the state absorbs one key at a time and answers for the keys so far.
func ExampleState() {
	_, k, v := example()
	l, err := regression.ByName("elu+1")
	if err != nil {
		panic(err)
	}
	s := l.Start(k, v)
	for j := range 3 {
		s.Absorb(k.RawRowView(j), v.RawRowView(j))
		fmt.Printf("%d keys: %.4f\n", s.Keys, s.Answer([]float64{1, 0}))
	}
	// Output:
	// 1 keys: [2.0000 0.0000]
	// 2 keys: [1.1111 0.8889]
	// 3 keys: [1.0667 0.9333]
}

// Products of random features are exp(x.y) on average: 0.9512 here.
func ExampleRandom() {
	x, y := []float64{.3, -.2}, []float64{.1, .4}
	for _, kind := range []regression.Estimator{regression.Trig, regression.Positive} {
		for _, m := range []int{10, 1000, 100000} {
			f := regression.Random{Kind: kind, W: regression.Directions(m, 2, 1)}
			fmt.Printf("%-8v %6d directions: %.3f, variance %.1e\n", kind, m, floats.Dot(f.Features(x), f.Features(y)), kind.Variance(x, y, m, false))
		}
	}
	// Output:
	// trig         10 directions: 0.968, variance 7.3e-03
	// trig       1000 directions: 0.955, variance 7.3e-05
	// trig     100000 directions: 0.951, variance 7.3e-07
	// positive     10 directions: 0.826, variance 2.0e-02
	// positive   1000 directions: 0.937, variance 2.0e-04
	// positive 100000 directions: 0.949, variance 2.0e-06
}
