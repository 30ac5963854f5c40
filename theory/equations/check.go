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

// A Check is what a row's check is written on. It collects facts, each a residual and what it may
// be at most, and the row passes if all hold. Factor, Sign, Index and Flip mark the ingredients of
// an equation that a mutant may change: a test runs the check once with each of them changed, and
// demands that it fails.
type Check struct {
	Rand     *rand.Rand            // the same numbers every time, other ones for every row
	Clock    func() time.Duration  // nil: there is none. What it measures is shown and never decides
	Products func() *nn.Multiplier // for the layers of package nn: see On

	facts  []Fact
	errata []Erratum
	notes  []string
	points []string // ingredients met, in order
	mutant string   // the ingredient that is changed; empty: none
}

// A Fact is one comparison.
type Fact struct {
	What            string
	Residual, Bound Number
}

// A Number is a float64 whose JSON can be NaN and infinite: a string, then.
type Number float64

// MarshalJSON writes a number, or its name.
func (x Number) MarshalJSON() ([]byte, error) {
	if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
		return strconv.AppendQuote(nil, strconv.FormatFloat(f, 'g', -1, 64)), nil
	}
	return strconv.AppendFloat(nil, float64(x), 'g', 6, 64), nil
}

// Holds says whether the residual is within the bound. NaN is not.
func (f Fact) Holds() bool { return f.Residual <= f.Bound }

// ratio is how close a fact is to failing.
func (f Fact) ratio() float64 {
	switch {
	case !f.Holds():
		return math.Inf(1)
	case f.Bound <= 0 || math.IsInf(float64(f.Bound), 1):
		return 0
	}
	return float64(f.Residual / f.Bound)
}

// An Erratum is a place where a source is wrong: what it prints, and what is right.
type Erratum struct{ ID, What, Ours, Printed string }

func newCheck(id string, env Env) *Check {
	h := fnv.New64a()
	h.Write([]byte(id))
	return &Check{Rand: rand.New(rand.NewPCG(h.Sum64(), 0)), Clock: env.Clock, Products: env.Products}
}

// On is what layers run on: the kernel that answers, or the definition, and products. Without any,
// the check ends.
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

// holds says whether all that was compared so far holds.
func (c *Check) holds() bool {
	return !slices.ContainsFunc(c.facts, func(f Fact) bool { return !f.Holds() })
}

// Within demands residual <= bound.
func (c *Check) Within(what string, residual, bound float64) {
	c.fact(Fact{what, Number(residual), Number(bound)})
}

// errFound ends the check of a mutant at the first comparison that does not hold: what follows
// would say nothing more.
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

// NearAll demands it of every element.
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

// NearMat demands it of every element of a matrix.
func (c *Check) NearMat(what string, got, want mat.Matrix, bound float64) {
	c.NearAll(what, Flat(got), Flat(want), bound)
}

// Tolerable demands that what a kernel answered is want within the error that float32 may leave in
// it, and in extra besides: what want itself may be off by. The residual is in units of that.
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

// Printed demands that numbers agree with printed ones, which are separated by blanks, to the last
// digit printed.
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

// True demands that something holds which has no size.
func (c *Check) True(what string, holds bool) {
	residual := 0.0
	if !holds {
		residual = 1
	}
	c.Within(what, residual, 0)
}

// Fail says that the check cannot hold, and why.
func (c *Check) Fail(format string, args ...any) {
	c.Within(fmt.Sprintf(format, args...), math.Inf(1), 0)
}

// Must ends the check where err is not nil: the row fails, or, where the kernel does not do what
// was asked, is not claimed by it.
func (c *Check) Must(err error) {
	if err != nil {
		panic(stop{err})
	}
}

// stop ends a check.
type stop struct{ error }

// Attend asks an Attention, and ends the check where there is no answer.
func (c *Check) Attend(a bridge.Attention, call bridge.Call) *bridge.Answer {
	ans, err := a.Attend(call)
	c.Must(err)
	return ans
}

// Refutes demands that ours is not what a source prints, which is erratum id, and keeps both to be
// shown.
func (c *Check) Refutes(id, what, printed string, ours float64) {
	wrong, err := strconv.ParseFloat(printed, 64)
	c.Must(err)
	c.True(id+": "+what+" is not "+printed, !(gap(ours, wrong) <= lastDigit(printed)/2))
	c.Erratum(id, what, strconv.FormatFloat(ours, 'g', 8, 64), printed)
}

// Erratum keeps what a source prints and what is right, to be shown.
func (c *Check) Erratum(id, what, ours, printed string) {
	c.errata = append(c.errata, Erratum{id, what, ours, printed})
}

// Note keeps a figure that is shown and decides nothing.
func (c *Check) Note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

// Factor is x, an ingredient of the equation. Its mutant is a quarter larger.
func (c *Check) Factor(name string, x float64) float64 {
	if c.Flip(name) {
		return 1.25 * x
	}
	return x
}

// Sign is x, an ingredient of the equation. Its mutant has the other sign.
func (c *Check) Sign(name string, x float64) float64 {
	if c.Flip(name) {
		return -x
	}
	return x
}

// Index is i, an index below n. Its mutant is the next one.
func (c *Check) Index(name string, i, n int) int {
	if c.Flip(name) {
		return (i + 1) % n
	}
	return i
}

// Flip says whether the ingredient is the one that is changed.
func (c *Check) Flip(name string) bool {
	for _, p := range c.points {
		if p == name {
			return c.mutant == name
		}
	}
	c.points = append(c.points, name)
	return c.mutant == name
}

// Normal is an r by k matrix of standard normal numbers.
func (c *Check) Normal(r, k int) *mat.Dense {
	m := mat.NewDense(r, k, nil)
	m.Apply(func(_, _ int, _ float64) float64 { return c.Rand.NormFloat64() }, m)
	return m
}

// Vector is n standard normal numbers.
func (c *Check) Vector(n int) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = c.Rand.NormFloat64()
	}
	return v
}

// Flat is the elements of m, row by row; of nil, none.
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

// Rows is a matrix of the given rows.
func Rows(rows ...[]float64) *mat.Dense {
	m := mat.NewDense(len(rows), len(rows[0]), nil)
	for i, r := range rows {
		m.SetRow(i, r)
	}
	return m
}

// gap is |a-b|, 0 for equal infinities.
func gap(a, b float64) float64 {
	if a == b {
		return 0
	}
	return math.Abs(a - b)
}

// larger is the larger of two, NaN where one is NaN.
func larger(a, b float64) float64 {
	if a > b || math.IsNaN(a) {
		return a
	}
	return b
}

// lastDigit is the worth of one in the last printed digit.
func lastDigit(s string) float64 {
	digits, exp, _ := strings.Cut(strings.ToLower(s), "e")
	e, _ := strconv.Atoi(exp)
	if _, after, ok := strings.Cut(digits, "."); ok {
		e -= len(after)
	}
	return math.Pow10(e)
}

// run runs f and says what stopped it.
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
