package geometry_test

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/num/dual"

	"attnlab/theory/geometry"
	"attnlab/theory/gibbs"
)

// Polar coordinates are curved, although the plane is flat: the symbols describe how the directions
// of r and theta turn from point to point.
func ExampleChristoffel() {
	s, err := geometry.Christoffel(geometry.Polar(), []float64{2, 0})
	if err != nil {
		panic(err)
	}
	fmt.Println("r, theta theta:", s[0].At(1, 1))
	fmt.Println("theta, r theta:", s[1].At(0, 1))
	// Output:
	// r, theta theta: -2
	// theta, r theta: 0.5
}

// A metric written in dual numbers yields its derivatives too.
func ExampleDual() {
	// The metric is 1/sqrt(2) at the origin and grows with x.
	scores := geometry.Dual(func(x []dual.Number) [][]dual.Number {
		g := dual.Scale(1/math.Sqrt2, dual.Exp(dual.Add(x[0], x[1])))
		return [][]dual.Number{{g, {}}, {{}, g}}
	})
	fmt.Printf("%.4f\n", scores.At([]float64{0, 0}).At(0, 0))
	fmt.Printf("%.4f\n", scores.Partials([]float64{0, 0})[1].At(0, 0))
	// Output:
	// 0.7071
	// 0.7071
}

// A straight line that passes the origin at distance 1, in polar coordinates.
func ExampleGeodesic() {
	start := geometry.Motion{X: []float64{1, 0}, U: []float64{0, 1}}
	path, err := geometry.Geodesic(geometry.Polar(), start, 1, 100)
	if err != nil {
		panic(err)
	}
	end := path[100]
	r, theta := end.X[0], end.X[1]
	fmt.Printf("r = %.6f, theta = %.6f\n", r, theta)
	fmt.Printf("x = %.6f, y = %.6f, speed %.6f\n", r*math.Cos(theta), r*math.Sin(theta), end.Speed(geometry.Polar()))
	// Output:
	// r = 1.414214, theta = 0.785398
	// x = 1.000000, y = 1.000000, speed 1.000000
}

// The natural gradient of -log p_0 by the logits [2, 1, 0]. The information is singular; the step
// adds up to 0, so it shifts nothing.
func ExampleNatural() {
	logits := []float64{2, 1, 0}
	gradient := gibbs.Softmax(logits, 1)
	gradient[0]--
	step, err := geometry.Natural(geometry.Categorical(logits, 1), gradient, 0)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%.8f\n", step)
	// Output:
	// [-1.00214315 0.50107157 0.50107157]
}

// The metric between queries and keys learns a pattern of attention. Along the natural gradient
// each step is a Newton step.
func ExampleLogLinear_Descend() {
	q := mat.NewDense(3, 2, []float64{1, 0, 0, 1, 1, 1})
	k := mat.NewDense(3, 2, []float64{1, 0, 0, 1, -1, 1})
	m := geometry.OfMetric(q, k, 1/math.Sqrt2)
	pattern := m.Weights([]float64{1, -1, 1, 0.5})
	for _, natural := range []bool{false, true} {
		path, err := m.Descend(make([]float64, 4), pattern, geometry.Descent{Natural: natural, Rate: 1, Steps: 4})
		if err != nil {
			panic(err)
		}
		fmt.Printf("natural %v:", natural)
		for _, s := range path {
			fmt.Printf(" %.1e", m.Loss(s.Theta, pattern))
		}
		fmt.Println()
	}
	// Output:
	// natural false: 9.8e-01 4.0e-02 1.9e-02 1.3e-02 9.9e-03
	// natural true: 9.8e-01 3.3e-02 8.0e-04 7.4e-07 1.5e-12
}
