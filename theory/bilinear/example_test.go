package bilinear_test

import (
	"errors"
	"fmt"

	"gonum.org/v1/gonum/mat"

	"attnlab/theory/bilinear"
)

// The scores of attention are a bilinear form with an explicit metric. These are the scores of the
// first worked example.
func ExampleForms() {
	q := mat.NewDense(2, 2, []float64{1, 0, 0, 1})
	k := mat.NewDense(3, 2, []float64{1, 0, 0, 1, 1, 1})
	fmt.Printf("%.8f\n", mat.Formatted(bilinear.Forms(q, bilinear.Scaled(2), k)))
	// Output:
	// ⎡0.70710678  0.00000000  0.70710678⎤
	// ⎣0.00000000  0.70710678  0.70710678⎦
}

// The metric lowers an index, and its inverse raises it again.
func ExampleMetric_Lower() {
	g, err := bilinear.New(mat.NewDense(3, 3, []float64{1, .5, 0, .5, 1, .5, 0, .5, 1}))
	if err != nil {
		panic(err)
	}
	low := g.Lower([]float64{1, 2, 3})
	fmt.Println(low)
	fmt.Printf("%.3f\n", g.Raise(low))
	fmt.Printf("%.3f\n", mat.Formatted(g.Inverse()))
	// Output:
	// [2 4 4]
	// [1.000 2.000 3.000]
	// ⎡ 1.500  -1.000   0.500⎤
	// ⎢-1.000   2.000  -1.000⎥
	// ⎣ 0.500  -1.000   1.500⎦
}

// A matrix of rank 1 is symmetric and has no negative eigenvalue, but it has no inverse, so it is
// no metric.
func ExampleValidate() {
	for _, g := range [][]float64{{2, .5, .5, 1}, {1, 2, 2, 4}, {1, 2, 2, 1}, {1, .5, .3, 1}} {
		fmt.Println(reason(bilinear.Validate(mat.NewDense(2, 2, g))))
	}
	// Output:
	// <nil>
	// singular: some vector other than 0 is orthogonal to all
	// not positive: some vector has a negative square
	// not symmetric
}

// The form of a learned W is a metric only if W has as many independent rows as dimensions.
func ExampleLearned() {
	l := bilinear.Learned{W: mat.NewDense(2, 2, []float64{1, 2, 3, 4})}
	fmt.Println(mat.Formatted(l.Form()), l.Rank())
	_, err := l.Metric()
	fmt.Println(err)

	low := bilinear.Learned{W: mat.NewDense(1, 2, []float64{1, 2})}
	_, err = low.Metric()
	fmt.Println(low.Rank(), reason(err))
	// Output:
	// ⎡10  14⎤
	// ⎣14  20⎦ 2
	// <nil>
	// 1 singular: some vector other than 0 is orthogonal to all
}

// reason returns the reason that an error wraps.
func reason(err error) error {
	for _, r := range []error{bilinear.ErrAsymmetric, bilinear.ErrIndefinite, bilinear.ErrSingular} {
		if errors.Is(err, r) {
			return r
		}
	}
	return err
}
