package equations

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/gonum/mat"

	"attnlab/nn"
	"attnlab/theory/bridge"
)

// A Check collects the facts of a row's check: each is a residual with its bound, and the row
// passes if all hold. Factor, Sign, Index and Flip mark the ingredients of an equation. A test runs
// the check once for each ingredient, with that one changed, and demands that it fails.
type Check struct {
	Rand     *rand.Rand            // seeded by the ID of the row
	Clock    func() time.Duration  // may be nil; times are shown and never decide
	Products func() *nn.Multiplier // for the layers of package nn; see On

	facts  []Fact
	errata []Erratum
	notes  []string
	points []string // ingredients marked so far
	mutant string   // the ingredient to change; empty means none
}

// A Fact is one comparison.
type Fact struct {
	What            string
	Residual, Bound Number
}

// A Number is a float64 whose JSON is a string if it is NaN or infinite.
type Number float64

// MarshalJSON returns the number with six digits, or the name of a NaN or infinity as a string.
func (x Number) MarshalJSON() ([]byte, error) {
	if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
		return strconv.AppendQuote(nil, strconv.FormatFloat(f, 'g', -1, 64)), nil
	}
	return strconv.AppendFloat(nil, float64(x), 'g', 6, 64), nil
}

// Holds reports whether the residual is within the bound. NaN is not.
func (f Fact) Holds() bool { return f.Residual <= f.Bound }

// ratio returns residual / bound: 1 or less for a fact that holds, and infinity for one that fails.
func (f Fact) ratio() float64 {
	switch {
	case !f.Holds():
		return math.Inf(1)
	case f.Bound <= 0 || math.IsInf(float64(f.Bound), 1):
		return 0
	}
	return float64(f.Residual / f.Bound)
}

// An Erratum is an error in a source: what is right, and what is printed.
type Erratum struct{ ID, What, Ours, Printed string }

func newCheck(id string, env Env) *Check {
	h := fnv.New64a()
	h.Write([]byte(id))
	return &Check{Rand: rand.New(rand.NewPCG(h.Sum64(), 0)), Clock: env.Clock, Products: env.Products}
}

// On returns the kernel and the matrix products that layers run on. The kernel of the definition is
// the definition itself. The check ends if Env has no products.
func (c *Check) On(a bridge.Attention) nn.On {
	if c.Products == nil {
		c.Must(errors.New("no matrix products: Env.Products makes them, on the loops of an instruction set"))
	}
	on := nn.On{Kernel: a.Kernel(), Products: c.Products()}
	if on.Kernel == nil {
		on.Kernel = definition{}
	}
	return on
}

// holds reports whether all facts so far hold.
func (c *Check) holds() bool {
	return !slices.ContainsFunc(c.facts, func(f Fact) bool { return !f.Holds() })
}

// Within demands residual <= bound.
func (c *Check) Within(what string, residual, bound float64) {
	c.fact(Fact{what, Number(residual), Number(bound)})
}

// errFound ends the check of a mutant at the first fact that fails. Later facts cannot change the
// verdict.
var errFound = errors.New("the mutant is found")

func (c *Check) fact(f Fact) {
	c.facts = append(c.facts, f)
	if c.mutant != "" && !f.Holds() {
		c.Must(errFound)
	}
}

// Near demands |got-want| <= bound. Infinities of one sign are equal.
func (c *Check) Near(what string, got, want, bound float64) {
	c.Within(what, gap(got, want), bound)
}

// NearAll demands |got-want| <= bound of every element.
func (c *Check) NearAll(what string, got, want []float64, bound float64) {
	if len(got) != len(want) {
		c.Fail("%s: %d numbers, want %d", what, len(got), len(want))
		return
	}
	worst := 0.0
	for i := range got {
		worst = larger(worst, gap(got[i], want[i]))
	}
	c.Within(what, worst, bound)
}

// NearMat demands |got-want| <= bound of every element of a matrix.
func (c *Check) NearMat(what string, got, want mat.Matrix, bound float64) {
	c.NearAll(what, Flat(got), Flat(want), bound)
}

// Tolerable demands that a kernel's answer is want, within the tolerance of float32 plus extra, the
// error of want itself. The residual is in units of that sum.
func (c *Check) Tolerable(what string, got bridge.Values, want mat.Matrix, extra float64) {
	x, tol, w := Flat(got.X), Flat(got.Tol), Flat(want)
	if len(x) != len(w) {
		c.Fail("%s: %d numbers, want %d", what, len(x), len(w))
		return
	}
	worst := 0.0
	for i := range x {
		if d := gap(x[i], w[i]); d != 0 {
			worst = larger(worst, d/(tol[i]+extra))
		}
	}
	c.Within(what+", in units of the tolerance", worst, 1)
}

// Printed demands that got agrees with printed numbers to their last digit. Blanks separate the
// printed numbers.
func (c *Check) Printed(what, printed string, got ...float64) {
	fields := strings.Fields(printed)
	if len(fields) != len(got) {
		c.Fail("%s: %d numbers, want %d", what, len(got), len(fields))
		return
	}
	var worst Fact
	for i, s := range fields {
		want, err := strconv.ParseFloat(s, 64)
		c.Must(err)
		f := Fact{what, Number(gap(got[i], want)), Number(lastDigit(s) / 2 * (1 + 1e-9))}
		if i == 0 || f.ratio() > worst.ratio() {
			worst = f
		}
	}
	c.fact(worst)
}

// True demands that a condition holds.
func (c *Check) True(what string, holds bool) {
	residual := 0.0
	if !holds {
		residual = 1
	}
	c.Within(what, residual, 0)
}

// Fail adds a fact that fails, with the reason as its name.
func (c *Check) Fail(format string, args ...any) {
	c.Within(fmt.Sprintf(format, args...), math.Inf(1), 0)
}

// Must ends the check if err is not nil. The row then fails. If err is [attn.ErrUnsupported], the
// kernel leaves the row unclaimed.
func (c *Check) Must(err error) {
	if err != nil {
		panic(stop{err})
	}
}

// stop is a panic that ends a check with an error.
type stop struct{ error }

// Attend returns the answer of a kernel, or of the definition. It ends the check on an error.
func (c *Check) Attend(a bridge.Attention, call bridge.Call) *bridge.Answer {
	ans, err := a.Attend(call)
	c.Must(err)
	return ans
}

// Refutes demands that our number differs from the printed one, and records both as erratum id.
func (c *Check) Refutes(id, what, printed string, ours float64) {
	wrong, err := strconv.ParseFloat(printed, 64)
	c.Must(err)
	c.True(id+": "+what+" is not "+printed, !(gap(ours, wrong) <= lastDigit(printed)/2))
	c.Erratum(id, what, strconv.FormatFloat(ours, 'g', 8, 64), printed)
}

// Erratum records what is right and what a source prints.
func (c *Check) Erratum(id, what, ours, printed string) {
	c.errata = append(c.errata, Erratum{id, what, ours, printed})
}

// Note records a figure that is shown but decides nothing.
func (c *Check) Note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

// Factor returns x and marks it as an ingredient. If it is the mutant, Factor returns 1.25 x.
func (c *Check) Factor(name string, x float64) float64 {
	if c.Flip(name) {
		return 1.25 * x
	}
	return x
}

// Sign returns x and marks its sign as an ingredient. If it is the mutant, Sign returns -x.
func (c *Check) Sign(name string, x float64) float64 {
	if c.Flip(name) {
		return -x
	}
	return x
}

// Index returns the index i < n and marks it as an ingredient. If it is the mutant, Index returns
// the next index.
func (c *Check) Index(name string, i, n int) int {
	if c.Flip(name) {
		return (i + 1) % n
	}
	return i
}

// Flip marks an ingredient and reports whether it is the mutant.
func (c *Check) Flip(name string) bool {
	for _, p := range c.points {
		if p == name {
			return c.mutant == name
		}
	}
	c.points = append(c.points, name)
	return c.mutant == name
}

// Normal returns an r by k matrix of standard normal numbers.
func (c *Check) Normal(r, k int) *mat.Dense {
	m := mat.NewDense(r, k, nil)
	m.Apply(func(_, _ int, _ float64) float64 { return c.Rand.NormFloat64() }, m)
	return m
}

// Vector returns n standard normal numbers.
func (c *Check) Vector(n int) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = c.Rand.NormFloat64()
	}
	return v
}

// Flat returns the elements of m row by row, and nothing for nil.
func Flat(m mat.Matrix) []float64 {
	if d, ok := m.(*mat.Dense); m == nil || ok && d == nil {
		return nil
	}
	r, k := m.Dims()
	to := make([]float64, 0, r*k)
	for i := range r {
		for j := range k {
			to = append(to, m.At(i, j))
		}
	}
	return to
}

// Rows returns the matrix that has the given rows.
func Rows(rows ...[]float64) *mat.Dense {
	m := mat.NewDense(len(rows), len(rows[0]), nil)
	for i, r := range rows {
		m.SetRow(i, r)
	}
	return m
}

// gap returns |a-b|, and 0 for equal infinities.
func gap(a, b float64) float64 {
	if a == b {
		return 0
	}
	return math.Abs(a - b)
}

// larger returns the larger of two numbers, and NaN if either is NaN.
func larger(a, b float64) float64 {
	if a > b || math.IsNaN(a) {
		return a
	}
	return b
}

// lastDigit returns the value of one unit in the last printed digit.
func lastDigit(s string) float64 {
	digits, exp, _ := strings.Cut(strings.ToLower(s), "e")
	e, _ := strconv.Atoi(exp)
	if _, after, ok := strings.Cut(digits, "."); ok {
		e -= len(after)
	}
	return math.Pow10(e)
}

// run runs f and returns the error or the panic that ended it.
func (c *Check) run(f func(*Check)) (err error) {
	defer func() {
		switch x := recover().(type) {
		case nil:
		case stop:
			err = x.error
		default:
			err = fmt.Errorf("panic: %v", x)
		}
	}()
	f(c)
	return nil
}
