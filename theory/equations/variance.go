package equations

import (
	"fmt"
	"math"
	"math/bits"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
)

// dimensions lists the d for which the sources give the variance of a score.
var dimensions = []int{8, 32, 128, 512}

// dotVariance checks Var(q.k) = d over random pairs of query and key.
//
// The sample variance of n numbers has a relative standard error of sqrt((m4/V^2 - 1) / n), where
// m4 is their fourth moment and V their variance. Here that is sqrt(2 kappa / n). Kappa is 1 + 3/d
// for normal components, and 1 - 1/d for signs.
func dotVariance(c *Check) {
	const pairs = 100_000
	for _, d := range dimensions {
		kappa := 1 - 1/float64(d)
		c.Near(fmt.Sprintf("Var(q.k)/d of signs, d = %d", d), stat.Variance(signProducts(c, pairs, d), nil)/c.Factor("d", float64(d)), 1, 3*math.Sqrt(2*kappa/pairs))
		if d > 32 {
			// Normal numbers are slow to draw; L-2.2 covers larger d with fewer pairs.
			continue
		}
		kappa = 1 + 3/float64(d)
		c.Near(fmt.Sprintf("Var(q.k)/d of normal numbers, d = %d", d), stat.Variance(normalProducts(c, pairs, d), nil)/c.Factor("d", float64(d)), 1, 3*math.Sqrt(2*kappa/pairs))
	}
}

// signProducts returns q.k for pairs of vectors of components 1 or -1: d minus twice the number of
// places where they differ.
func signProducts(c *Check, pairs, d int) []float64 {
	products := make([]float64, pairs)
	for n := range products {
		differ := 0
		for left := d; left > 0; left -= 64 {
			q, k := c.Rand.Uint64(), c.Rand.Uint64()
			if c.Flip("k apart from q") {
				k = q
			}
			x := q ^ k
			if left < 64 {
				x &= 1<<left - 1
			}
			differ += bits.OnesCount64(x)
		}
		products[n] = float64(d - 2*differ)
	}
	return products
}

// normalProducts returns q.k for pairs of vectors of normal numbers.
func normalProducts(c *Check, pairs, d int) []float64 {
	products, q, k := make([]float64, pairs), make([]float64, d), make([]float64, d)
	for n := range products {
		draw(c, q)
		draw(c, k)
		if c.Flip("k apart from q") {
			copy(k, q)
		}
		products[n] = floats.Dot(q, k)
	}
	return products
}

func draw(c *Check, x []float64) {
	for a := range x {
		x[a] = c.Rand.NormFloat64()
	}
}

// lessonVariance draws a new key for every query, as the analysis does, and compares the variance
// with the lesson's printed figures.
func lessonVariance(c *Check) {
	const n = 4000
	listed := demonstration(c)
	for _, d := range dimensions {
		products, q, k := make([]float64, n), make([]float64, d), make([]float64, d)
		draw(c, k)
		for i := range products {
			if !c.Flip("a new key each time") {
				draw(c, k)
			}
			draw(c, q)
			products[i] = floats.Dot(q, k)
		}
		raw := stat.Variance(products, nil)
		floats.Scale(c.Factor("1/sqrt(d_k)", 1/math.Sqrt(float64(d))), products)
		scaled := stat.Variance(products, nil)
		bound := 3 * math.Sqrt(2*(1+3/float64(d))/n)
		c.Near(fmt.Sprintf("Var(q.k)/d, d = %d", d), raw/float64(d), 1, bound)
		c.Near(fmt.Sprintf("Var(q.k/sqrt(d)), d = %d", d), scaled, 1, bound)
		c.Refutes("E-19", fmt.Sprintf("Var(q.k), d = %d", d), listed[d][0], raw)
		c.Refutes("E-19", fmt.Sprintf("Var(q.k/sqrt(d)), d = %d", d), listed[d][1], scaled)
	}
}

// demonstration repeats the lesson's listing to the last printed digit: a thousand queries and a
// single key. The listing prints estimates of |k|^2 and of |k|^2/d as the variances of q.k and of
// q.k/sqrt(d). demonstration returns these printed figures.
func demonstration(c *Check) map[int][2]string {
	const queries = 1000
	r := newNumpyRandom(42)
	listed := map[int][2]string{}
	for _, o := range []struct {
		d                   int
		raw, scaled, square string
	}{
		{8, "5.14", ".64", "5.01"},
		{32, "35.95", "1.12", "33.84"},
		{128, "107.71", ".84", "114.06"},
		{512, "548.67", "1.07", "534.53"},
	} {
		q, k := r.randn(queries, o.d), r.randn(1, o.d).RawRowView(0)
		products := make([]float64, queries)
		for i := range products {
			products[i] = floats.Dot(q.RawRowView(i), k)
		}
		variance, square := stat.PopVariance(products, nil), floats.Dot(k, k)
		what := fmt.Sprintf("the listing with d = %d: ", o.d)
		c.Printed(what+"variance of q.k", o.raw, variance)
		c.Printed(what+"the same divided by d", o.scaled, variance/c.Factor("d", float64(o.d)))
		c.Printed(what+"|k|^2", o.square, square)
		c.Near(what+"variance over |k|^2", variance/square, 1, 3*math.Sqrt(2./queries))
		listed[o.d] = [2]string{o.raw, o.scaled}
	}
	return listed
}
