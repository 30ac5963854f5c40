package calculus

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"attnlab/attn"
	"attnlab/theory/scorers"
)

// A Setting is a loss as a function of Q, K and V: dot-product attention followed by Loss. The zero
// Setting is half the squared norm of softmax(Q K^T / sqrt d) V.
type Setting struct {
	Scale, Temp float64
	Mask        func(i, j int) bool // true shows key j to query i; nil shows all
	Loss        Loss
}

// A Loss is Squares sum_ib O_ib^2 + sum_ib Weights_ib O_ib. The zero Loss is half the squared norm
// of O.
type Loss struct {
	Squares float64
	Weights mat.Matrix // nil counts as 0
}

// squares returns the coefficient of the squares, 1/2 for the zero Loss.
func (l Loss) squares() float64 {
	if l.Squares == 0 && !given(l.Weights) {
		return 0.5
	}
	return l.Squares
}

// weight returns the coefficient of O_ib.
func (l Loss) weight(i, b int) float64 {
	if !given(l.Weights) {
		return 0
	}
	return l.Weights.At(i, b)
}

// Of returns the loss for the output o.
func (l Loss) Of(o mat.Matrix) float64 {
	rows, cols := o.Dims()
	total := 0.0
	for i := range rows {
		for b := range cols {
			x := o.At(i, b)
			total += l.squares()*x*x + l.weight(i, b)*x
		}
	}
	return total
}

// Grad returns dO, the gradient of the loss at the output o.
func (l Loss) Grad(o mat.Matrix) *mat.Dense {
	var to mat.Dense
	to.Apply(func(i, b int, x float64) float64 { return 2*l.squares()*x + l.weight(i, b) }, o)
	return &to
}

// Gradients holds the gradients of a loss by the operands.
type Gradients struct{ DQ, DK, DV *mat.Dense }

// A Backprop is a backward pass with the signature of Backward.
type Backprop func(d *scorers.Decomposition, q, k, v mat.Matrix, scale float64, dO mat.Matrix) *Staged

// Exact and Approximate bound the errors of a correct gradient, relative to Verdict.Size. Exact is
// for derivatives that subtract nothing, Approximate for central differences.
const (
	Exact       = 1e-12
	Approximate = 1e-7
)

// Errors holds the largest difference between a gradient and each of three references, relative to
// Verdict.Size.
type Errors struct {
	Dual, ComplexStep, Difference float64
	// Right reports whether the first two are within Exact and the third within Approximate.
	Right bool
}

// A Verdict reports which gradients are right.
type Verdict struct {
	DQ, DK, DV Errors
	AllRight   bool
	Size       float64 // the largest of the loss and all elements of its gradients
}

// VerifyGradients verifies Backward on the given operands, for half the squared norm of the output.
func VerifyGradients(q, k, v mat.Matrix) (Verdict, error) { return Setting{}.Verify(Backward, q, k, v) }

// Verify verifies a backward pass on the given operands. It differentiates by every element of
// every operand, in three ways, so it is for small problems. It returns an error for operands or a
// setting that have no gradient to verify.
func (s Setting) Verify(b Backprop, q, k, v mat.Matrix) (Verdict, error) {
	dual, err := s.Dual(q, k, v)
	if err != nil {
		return Verdict{}, err
	}
	step, err := s.ComplexStep(q, k, v)
	if err != nil {
		return Verdict{}, err
	}
	difference, err := s.Differences(q, k, v, 0)
	if err != nil {
		return Verdict{}, err
	}
	got := s.by(b, q, k, v)
	size := math.Abs(s.Loss.Of(s.attend(q, k, v).Output))
	for _, m := range []*mat.Dense{dual.DQ, dual.DK, dual.DV} {
		size = max(size, mat.Max(m), -mat.Min(m))
	}
	against := func(of func(g Gradients) *mat.Dense) Errors {
		e := Errors{Dual: apart(of(got), of(dual), size), ComplexStep: apart(of(got), of(step), size), Difference: apart(of(got), of(difference), size)}
		e.Right = e.Dual <= Exact && e.ComplexStep <= Exact && e.Difference <= Approximate
		return e
	}
	to := Verdict{
		DQ:   against(func(g Gradients) *mat.Dense { return g.DQ }),
		DK:   against(func(g Gradients) *mat.Dense { return g.DK }),
		DV:   against(func(g Gradients) *mat.Dense { return g.DV }),
		Size: size,
	}
	to.AllRight = to.DQ.Right && to.DK.Right && to.DV.Right
	return to, nil
}

// apart returns the largest difference of two elements, relative to size. It is +Inf if got is nil
// or the shapes differ.
func apart(got, want *mat.Dense, size float64) float64 {
	if got == nil {
		return math.Inf(1)
	}
	r, c := got.Dims()
	if rows, cols := want.Dims(); r != rows || c != cols {
		return math.Inf(1)
	}
	worst, w := 0.0, flat(want)
	for e, x := range flat(got) {
		if d := math.Abs(x - w[e]); d > worst || math.IsNaN(d) {
			worst = d // a NaN persists
		}
	}
	if worst == 0 {
		return 0 // even if size is 0
	}
	return worst / size
}

// by returns the gradients that a backward pass computes.
func (s Setting) by(b Backprop, q, k, v mat.Matrix) Gradients {
	d := s.attend(q, k, v)
	st := b(d, q, k, v, s.Scale, s.Loss.Grad(d.Output))
	return Gradients{st.DQ, st.DK, st.DV}
}

// check returns an error that says what is wrong with operands from outside.
func (s Setting) check(q, k, v mat.Matrix) error {
	if !given(q) || !given(k) || !given(v) {
		return errors.New("verify gradients: got a nil operand, want all three of Q, K and V")
	}
	nq, d := q.Dims()
	nk, dk := k.Dims()
	rows, dv := v.Dims()
	switch {
	case min(nq, nk, d, dv) < 1:
		return errors.New("verify gradients: got an empty operand, want at least one query, key and dimension")
	case d != dk:
		return fmt.Errorf("verify gradients: Q has %d columns and K has %d, want equal numbers for a dot product", d, dk)
	case nk != rows:
		return fmt.Errorf("verify gradients: K has %d rows and V has %d, want one value for each key", nk, rows)
	case s.Temp == attn.Frozen || math.IsInf(s.Temp, 1):
		return errors.New("verify gradients: got a limit of the temperature, where weights do not depend smoothly on scores, want a positive, finite temperature")
	case s.Temp < 0 || math.IsNaN(s.Temp):
		return fmt.Errorf("verify gradients: got temperature %v, want a positive one, or 0 for 1", s.Temp)
	}
	if w := s.Loss.Weights; given(w) {
		if r, c := w.Dims(); r != nq || c != dv {
			return fmt.Errorf("verify gradients: Loss.Weights is %d by %d for an output of %d by %d, want equal shapes", r, c, nq, dv)
		}
	}
	return nil
}
