package calculus

import (
	"math"
	"math/cmplx"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/num/dual"
)

// numbers is an arithmetic for the loss in which each number carries its derivative.
type numbers[T any] struct {
	of       func(x float64) T // a constant
	moved    func(x float64) T // the variable of the derivative
	value    func(x T) float64
	slope    func(x T) float64
	add, mul func(x, y T) T
	scale    func(f float64, x T) T
	exp, inv func(x T) T
}

// duals computes with x + x' e, e^2 = 0: pairs of a number and its derivative, which obey the chain
// rule.
var duals = numbers[dual.Number]{
	of:    func(x float64) dual.Number { return dual.Number{Real: x} },
	moved: func(x float64) dual.Number { return dual.Number{Real: x, Emag: 1} },
	value: func(x dual.Number) float64 { return x.Real },
	slope: func(x dual.Number) float64 { return x.Emag },
	add:   dual.Add, mul: dual.Mul, scale: dual.Scale, exp: dual.Exp, inv: dual.Inv,
}

// tiny is the complex step h. f(x + i h) = f(x) + i h f'(x) up to terms of h^2 and h^3, so f'(x) is
// the imaginary part over h. Nothing is subtracted, so h can be small enough to leave no truncation
// error.
const tiny = 1e-50

// complexes computes with numbers that take a small step along the imaginary axis.
var complexes = numbers[complex128]{
	of:    func(x float64) complex128 { return complex(x, 0) },
	moved: func(x float64) complex128 { return complex(x, tiny) },
	value: func(x complex128) float64 { return real(x) },
	slope: func(x complex128) float64 { return imag(x) / tiny },
	add:   func(x, y complex128) complex128 { return x + y },
	mul:   func(x, y complex128) complex128 { return x * y },
	scale: func(f float64, x complex128) complex128 { return complex(f*real(x), f*imag(x)) },
	exp:   cmplx.Exp,
	inv:   func(x complex128) complex128 { return 1 / x },
}

// Dual returns the gradients of the loss by dual numbers, with one evaluation for each element of
// an operand.
func (s Setting) Dual(q, k, v mat.Matrix) (Gradients, error) {
	if err := s.check(q, k, v); err != nil {
		return Gradients{}, err
	}
	return elementwise(&duals, &s, q, k, v), nil
}

// ComplexStep returns the gradients of the loss by a step into the complex plane, with one
// evaluation for each element of an operand.
func (s Setting) ComplexStep(q, k, v mat.Matrix) (Gradients, error) {
	if err := s.check(q, k, v); err != nil {
		return Gradients{}, err
	}
	return elementwise(&complexes, &s, q, k, v), nil
}

// A shape holds the sizes of a problem.
type shape struct{ nq, nk, d, dv int }

func shapeOf(q, k, v mat.Matrix) shape {
	nq, d := q.Dims()
	nk, dv := v.Dims()
	demand("K", k, nk, d)
	return shape{nq, nk, d, dv}
}

// elementwise differentiates by one element of one operand at a time.
func elementwise[T any](n *numbers[T], s *Setting, q, k, v mat.Matrix) Gradients {
	z := shapeOf(q, k, v)
	var x [3][]T
	var to [3]*mat.Dense
	operands := [3]mat.Matrix{q, k, v}
	for w, m := range operands {
		for _, f := range flat(m) {
			x[w] = append(x[w], n.of(f))
		}
	}
	for w, m := range operands {
		rows, cols := m.Dims()
		to[w] = mat.NewDense(rows, cols, nil)
		for e, was := range x[w] {
			x[w][e] = n.moved(n.value(was))
			to[w].Set(e/cols, e%cols, n.slope(lossIn(n, s, z, x)))
			x[w][e] = was
		}
	}
	return Gradients{to[0], to[1], to[2]}
}

// lossIn returns the loss, computed from the definition in plain loops.
func lossIn[T any](n *numbers[T], s *Setting, z shape, x [3][]T) T {
	q, k, v := x[0], x[1], x[2]
	byTemp := dotScale(s.Scale, z.d) / temperature(s.Temp)
	total := n.of(0)
	for i := range z.nq {
		var keys []int
		var logits []T
		top := math.Inf(-1)
		for j := range z.nk {
			if s.Mask != nil && !s.Mask(i, j) {
				continue
			}
			dot := n.of(0)
			for a := range z.d {
				dot = n.add(dot, n.mul(q[i*z.d+a], k[j*z.d+a]))
			}
			keys, logits = append(keys, j), append(logits, n.scale(byTemp, dot))
			top = max(top, n.value(logits[len(logits)-1]))
		}
		if keys == nil {
			continue // the output is 0 for all operands
		}
		sum := n.of(0)
		for l, logit := range logits {
			// Subtracting one constant from every score cancels in the quotient.
			logits[l] = n.exp(n.add(logit, n.of(-top)))
			sum = n.add(sum, logits[l])
		}
		share := n.inv(sum)
		for b := range z.dv {
			o := n.of(0)
			for l, j := range keys {
				o = n.add(o, n.mul(logits[l], v[j*z.dv+b]))
			}
			o = n.mul(o, share)
			total = n.add(total, n.add(n.scale(s.Loss.squares(), n.mul(o, o)), n.scale(s.Loss.weight(i, b), o)))
		}
	}
	return total
}
