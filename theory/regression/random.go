package regression

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

// An Estimator is a way to turn a random direction w into features. Over standard normal
// directions, the products of features are exp(x.y) on average. With n = |x|^2/2 and m directions
// the features are
//
//	Trig          e^n  (cos w.x, sin w.x)  / sqrt(m)    random Fourier features
//	Positive      e^-n  e^(w.x)            / sqrt(m)    FAVOR+, of the Performer
//	Hyperbolic    e^-n (e^(w.x), e^(-w.x)) / sqrt(2m)   FAVOR+ with both w and -w
//
// and the product of one direction is, up to 1/m,
//
//	Trig          e^(n_x+n_y)  cos w.(x-y)
//	Positive      e^-(n_x+n_y) e^(w.(x+y))
//	Hyperbolic    e^-(n_x+n_y) cosh w.(x+y)
//
// Trig is exact where x = y. Its relative error is largest where exp(x.y) is smallest: weights that
// should be near 0 can be negative. The others are always positive, and exact where x = -y.
// Fourier features are waves. The library's page gives e^(w.x) over sqrt(d) for them, which is no
// wave, and whose products are too large by a factor of e^(n_x+n_y) (E-40).
type Estimator uint8

const (
	Trig Estimator = iota
	Positive
	Hyperbolic
)

// String returns the name in lower case.
func (e Estimator) String() string {
	if names := [...]string{"trig", "positive", "hyperbolic"}; int(e) < len(names) {
		return names[e]
	}
	return fmt.Sprintf("estimator(%d)", uint8(e))
}

// A Random maps to random features, whose products are exp(scale x.y) on average over the
// directions.
type Random struct {
	Kind  Estimator
	W     *mat.Dense // one direction in each row: Directions, Orthogonal
	Scale float64    // 1/sqrt(d) for attention; 0 means 1
}

// Features returns one or two numbers for each direction.
func (f Random) Features(x []float64) []float64 {
	scale := f.Scale
	if scale == 0 {
		scale = 1
	}
	m, d := f.W.Dims()
	if d != len(x) {
		panic(fmt.Sprintf("regression: got directions in %d dimensions for %d numbers, want equal dimensions", d, len(x)))
	}
	x = floats.ScaleTo(make([]float64, d), math.Sqrt(scale), x)
	n, to := floats.Dot(x, x)/2, make([]float64, 0, 2*m)
	for i := range m {
		p := floats.Dot(f.W.RawRowView(i), x)
		switch f.Kind {
		case Trig:
			sin, cos := math.Sincos(p)
			to = append(to, math.Exp(n)*cos, math.Exp(n)*sin)
		case Positive:
			to = append(to, math.Exp(p-n))
		case Hyperbolic:
			to = append(to, math.Exp(p-n)/math.Sqrt2, math.Exp(-p-n)/math.Sqrt2)
		default:
			panic(fmt.Sprintf("regression: unknown %v", f.Kind))
		}
	}
	floats.Scale(1/math.Sqrt(float64(m)), to)
	return to
}

// Directions returns m independent standard normal directions in d dimensions, which the seed
// determines.
func Directions(m, d int, seed uint64) *mat.Dense { return normal(m, d, source(seed)) }

// Orthogonal returns m standard normal directions like Directions, in blocks of d that are
// orthogonal to each other. The directions of a block cover different parts of the space. Products
// of features are still exact on average, and with positive features their variance is always
// smaller.
func Orthogonal(m, d int, seed uint64) *mat.Dense {
	src := source(seed)
	length := distuv.Chi{K: float64(d), Src: src}
	to := mat.NewDense(m, d, nil)
	for i := 0; i < m; i += d {
		block := rotation(d, src)
		for r := range min(d, m-i) {
			row := to.RawRowView(i + r)
			floats.ScaleTo(row, length.Rand(), block.RawRowView(r))
		}
	}
	return to
}

// rotation returns a random orthogonal matrix, uniformly distributed: the Q of a normal matrix,
// with signs that make the diagonal of R positive.
func rotation(d int, src *rand.Rand) *mat.Dense {
	var (
		qr   mat.QR
		q, r mat.Dense
	)
	qr.Factorize(normal(d, d, src))
	qr.QTo(&q)
	qr.RTo(&r)
	q.Apply(func(_, j int, x float64) float64 { return math.Copysign(1, r.At(j, j)) * x }, &q)
	return &q
}

func normal(m, d int, src *rand.Rand) *mat.Dense {
	to := mat.NewDense(m, d, nil)
	to.Apply(func(_, _ int, _ float64) float64 { return src.NormFloat64() }, to)
	return to
}

func source(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// Variance returns the variance of f(x).f(y), with Scale 1, over draws of m directions. With s =
// |x|^2+|y|^2, a = |x-y|^2 and b = |x+y|^2, independent directions have
//
//	Trig          e^s  (1 - e^-a)^2 / 2m
//	Positive      e^-s (e^2b - e^b) / m
//	Hyperbolic    e^-s (e^b - 1)^2  / 2m
//
// Orthogonal directions add a covariance for each pair of a block. The sum of two of them has a
// uniform direction, and its squared length is chi^2 with 2d degrees of freedom, so that
//
//	E e^((w+w').z) = sum_k (d)_k / (d/2)_k (|z|^2/2)^k / k!
//	(x)_k = x (x+1) ... (x+k-1)
//
// For independent directions this is e^|z|^2, in which each term from k = 2 on is larger. So the
// covariance is negative with Positive and Hyperbolic. Trig has the same series in -|z|^2, and a
// negative covariance where x and y are near.
func (e Estimator) Variance(x, y []float64, m int, orthogonal bool) float64 {
	s, a, b := floats.Dot(x, x)+floats.Dot(y, y), 0.0, 0.0
	for i := range x {
		a += (x[i] - y[i]) * (x[i] - y[i])
		b += (x[i] + y[i]) * (x[i] + y[i])
	}
	// The variance of one direction's product, and the covariance of two in a block.
	var one, pair float64
	d := float64(len(x))
	switch e {
	case Trig:
		one = math.Exp(s) * math.Pow(math.Expm1(-a), 2) / 2
		pair = math.Exp(s) * (pairMoment(d, -a/2) - math.Exp(-a))
	case Positive:
		one = math.Exp(b-s) * math.Expm1(b)
		pair = math.Exp(-s) * (pairMoment(d, b/2) - math.Exp(b))
	case Hyperbolic:
		one = math.Exp(-s) * math.Pow(math.Expm1(b), 2) / 2
		pair = math.Exp(-s) * (pairMoment(d, b/2) - math.Exp(b))
	default:
		panic(fmt.Sprintf("regression: unknown %v", e))
	}
	sum := float64(m) * one
	if orthogonal {
		pairs := func(n int) float64 { return float64(n * (n - 1)) } // ordered pairs
		sum += pair * (float64(m/len(x))*pairs(len(x)) + pairs(m%len(x)))
	}
	return sum / float64(m*m)
}

// pairMoment returns sum_k (d)_k/(d/2)_k t^k/k!, Kummer's function of d, d/2 and t.
func pairMoment(d, t float64) float64 {
	sum, term := 1.0, 1.0
	for k := 0.0; math.Abs(term) > 1e-17*math.Abs(sum) || k < math.Abs(t); k++ {
		term *= (d + k) / (d/2 + k) * t / (k + 1)
		sum += term
	}
	return sum
}
