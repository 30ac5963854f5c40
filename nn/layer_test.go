package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"attnlab/attn"
	"attnlab/kernels"
	"attnlab/kernels/asm"

	"gonum.org/v1/gonum/diff/fd"
)

// A twin is a layer's forward pass in float64, as its documentation states it: rows in, rows out. Parameters are asked for through w, so that a gradient check
// can put others in their place.
type twin func(w func(*Param) [][]float64, x [][]float64) [][]float64

// wide is a matrix in float64.
func wide(m Mat) [][]float64 {
	to := make([][]float64, m.Rows)
	for i := range to {
		for _, x := range m.Row(i) {
			to[i] = append(to[i], float64(x))
		}
	}
	return to
}

// loss is Σ r_ij y_ij, whose gradient by y is r.
func loss(r, y [][]float64) (sum float64) {
	for i := range r {
		for j := range r[i] {
			sum += r[i][j] * y[i][j]
		}
	}
	return sum
}

// bound is what a gradient, or an output, may differ from the twin's by, as a part of its largest element: some 32 roundings. The twin's gradients are central
// differences of fourth order in float64, good to some 1e-10. A gradient that is 0 by cancelling, as that of the keys' bias is (a number that is added to all
// scores of a row changes no weight), is held to the largest element of the gradient by the input.
const bound = 32 * 0x1p-24

// near compares with a matrix of the twin; if that is 0 beside other, with the size of other.
func near(t *testing.T, what string, got Mat, want [][]float64, other float64) {
	t.Helper()
	if err := compared(what, got, want, other); err != nil {
		t.Error(err)
	}
}

// compared says what is wrong where near would.
func compared(what string, got Mat, want [][]float64, other float64) error {
	scale, worst := largestOf(want), 0.0
	if scale < bound*other {
		scale = other
	}
	for i := range want {
		for j, x := range want[i] {
			if d := math.Abs(float64(got.Row(i)[j]) - x); !(d <= worst) {
				worst = d
			}
		}
	}
	if !(worst <= bound*scale) {
		return fmt.Errorf("%s: off by %.3g, which is %.3g of the largest, want at most %.3g", what, worst, worst/scale, bound)
	}
	return nil
}

// largestOf is the size of the largest element.
func largestOf(m [][]float64) (largest float64) {
	for i := range m {
		for _, x := range m[i] {
			largest = math.Max(largest, math.Abs(x))
		}
	}
	return largest
}

// differences is the gradient of f by the elements of m, by central differences.
func differences(m [][]float64, f func() float64) [][]float64 {
	stencil := fd.Formula{Stencil: []fd.Point{{Loc: -2, Coeff: 1. / 12}, {Loc: -1, Coeff: -2. / 3}, {Loc: 1, Coeff: 2. / 3}, {Loc: 2, Coeff: -1. / 12}}, Derivative: 1, Step: 1e-3}
	grad := make([][]float64, len(m))
	for i := range m {
		for j := range m[i] {
			at := m[i][j]
			grad[i] = append(grad[i], fd.Derivative(func(x float64) float64 { m[i][j] = x; defer func() { m[i][j] = at }(); return f() }, at, &fd.Settings{Formula: stencil}))
		}
	}
	return grad
}

// checkLayer holds a layer to its twin on the loops of every instruction set.
func checkLayer(t *testing.T, l Layer, in Shape, f twin) {
	t.Helper()
	eachISA(t, func(t *testing.T, ops *asm.Ops) {
		t.Helper()
		if err := check(ops, l, in, f); err != nil {
			t.Error(err)
		}
	})
}

// check holds a layer's output, and its gradients by the input and by every parameter, to its twin: the same bits on two workers, adding to gradients, and without
// allocating. It returns what is wrong first.
func check(ops *asm.Ops, l Layer, in Shape, f twin) error {
	r := rand.New(rand.NewPCG(7, 8))
	kernel, err := kernels.ByName("flash", ops.ISA)
	if err != nil {
		return err
	}
	x := random(r, in.Rows(), in.Dim, 0)
	pass, dim, err := l.Plan(On{kernel, NewMultiplier(ops, nil), nil}, in)
	if err != nil {
		return err
	}
	dy := random(r, in.Rows(), dim, 0)
	own := map[*Param][][]float64{}
	for _, p := range l.Params() {
		own[p] = wide(p.W)
		p.Grad.Clear()
	}
	w := func(p *Param) [][]float64 { return own[p] }
	x64, dy64 := wide(x), wide(dy)
	y := pass.Forward(x)
	if err := compared("output", y, f(w, x64), 0); err != nil {
		return err
	}
	dx := pass.Backward(dy)
	value := func() float64 { return loss(dy64, f(w, x64)) }
	wantX := differences(x64, value)
	if err := compared("gradient by the input", dx, wantX, 0); err != nil {
		return err
	}
	for _, p := range l.Params() {
		if err := compared("gradient by "+p.Name, p.Grad, differences(own[p], value), largestOf(wantX)); err != nil {
			return err
		}
	}

	team := attn.NewTeam(2)
	defer team.Close()
	other, _, err := l.Plan(On{kernel, NewMultiplier(ops, team), nil}, in)
	if err != nil {
		return err
	}
	var before []Mat
	for _, p := range l.Params() {
		before = append(before, Mat{append([]float32(nil), p.Grad.Data...), p.Grad.Rows, p.Grad.Cols, p.Grad.Stride})
		p.Grad.Clear()
	}
	if err := sameBits("output", y, other.Forward(x)); err != nil {
		return err
	}
	if err := sameBits("gradient by the input", dx, other.Backward(dy)); err != nil {
		return err
	}
	for i, p := range l.Params() {
		if err := sameBits("gradient by "+p.Name, before[i], p.Grad); err != nil {
			return err
		}
	}
	pass.Forward(x)
	pass.Backward(dy)
	for i, p := range l.Params() {
		twice := wide(before[i])
		for _, row := range twice {
			for k := range row {
				row[k] *= 2
			}
		}
		if err := compared("a second pass besides, "+p.Name, p.Grad, twice, largestOf(wantX)); err != nil {
			return err
		}
	}
	if n := testing.AllocsPerRun(2, func() { pass.Forward(x); pass.Backward(dy) }); n != 0 {
		return fmt.Errorf("%v allocations a pass", n)
	}
	return nil
}

// sameBits says where one worker has other bits than two.
func sameBits(what string, a, b Mat) error {
	for i := range a.Rows {
		for j, x := range a.Row(i) {
			if math.Float32bits(x) != math.Float32bits(b.Row(i)[j]) {
				return fmt.Errorf("%s %d, %d is %v on one worker and %v on two", what, i, j, x, b.Row(i)[j])
			}
		}
	}
	return nil
}

func linearTwin(l *Linear) twin {
	return func(w func(*Param) [][]float64, x [][]float64) [][]float64 {
		y := make([][]float64, len(x))
		for i := range x {
			y[i] = make([]float64, l.W.W.Cols)
			for j := range y[i] {
				if l.B != nil {
					y[i][j] = w(l.B)[0][j]
				}
				for k, x := range x[i] {
					y[i][j] += x * w(l.W)[k][j]
				}
			}
		}
		return y
	}
}

func normTwin(n *Norm) twin {
	return func(w func(*Param) [][]float64, x [][]float64) [][]float64 {
		y := make([][]float64, len(x))
		for i, row := range x {
			mean, square := 0.0, 0.0
			if n.Centred {
				for _, x := range row {
					mean += x / float64(len(row))
				}
			}
			for _, x := range row {
				square += (x - mean) * (x - mean) / float64(len(row))
			}
			for c, x := range row {
				y[i] = append(y[i], w(n.Gain)[0][c]*(x-mean)/math.Sqrt(square+n.Eps))
				if n.Bias != nil {
					y[i][c] += w(n.Bias)[0][c]
				}
			}
		}
		return y
	}
}

func activationTwin(f Activation) twin {
	return func(_ func(*Param) [][]float64, x [][]float64) [][]float64 {
		y := make([][]float64, len(x))
		for i := range x {
			for _, x := range x[i] {
				y[i] = append(y[i], map[Activation]float64{
					ReLU: math.Max(x, 0), GELU: x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+.044715*x*x*x))), SiLU: x / (1 + math.Exp(-x)),
				}[f])
			}
		}
		return y
	}
}

// then is one twin after another.
func then(a, b twin) twin {
	return func(w func(*Param) [][]float64, x [][]float64) [][]float64 { return b(w, a(w, x)) }
}

// both joins what two twins make of the same rows.
func both(a, b twin, join func(a, b float64) float64) twin {
	return func(w func(*Param) [][]float64, x [][]float64) [][]float64 {
		y, z := a(w, x), b(w, x)
		for i := range y {
			for j := range y[i] {
				y[i][j] = join(y[i][j], z[i][j])
			}
		}
		return y
	}
}

// identity copies.
func identity(_ func(*Param) [][]float64, x [][]float64) [][]float64 {
	y := make([][]float64, len(x))
	for i := range x {
		y[i] = append(y[i], x[i]...)
	}
	return y
}

func plus(a, b float64) float64  { return a + b }
func times(a, b float64) float64 { return a * b }

// attentionTwin is causal or not, head by head, of self-attention.
func attentionTwin(l *Attention, in Shape, causal bool) twin {
	return func(w func(*Param) [][]float64, x [][]float64) [][]float64 {
		q, k, v := linearTwin(l.Q)(w, x), linearTwin(l.K)(w, x), linearTwin(l.V)(w, x)
		d := len(q[0]) / l.Heads
		o := make([][]float64, len(q))
		for i := range o {
			o[i] = make([]float64, len(q[0]))
			first := i / in.Seq * in.Seq
			last := first + in.Seq - 1
			if causal {
				last = i
			}
			for h := range l.Heads {
				g := h / (l.Heads / l.KVHeads)
				sum := 0.0
				for j := first; j <= last; j++ {
					s := 0.0
					for a := range d {
						s += q[i][h*d+a] * k[j][g*d+a]
					}
					p := math.Exp(s / math.Sqrt(float64(d)))
					sum += p
					for a := range d {
						o[i][h*d+a] += p * v[j][g*d+a]
					}
				}
				for a := range d {
					o[i][h*d+a] /= sum
				}
			}
		}
		return linearTwin(l.Out)(w, o)
	}
}

func TestLinear(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, bias := range []bool{false, true} {
		l := NewLinear("l", 7, 5, bias, r)
		if bias {
			l.B.Normal(r, 1)
		}
		checkLayer(t, l, Shape{1, 9, 7}, linearTwin(l))
	}
}

func TestNorm(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	for _, n := range []*Norm{NewLayerNorm("n", 11), NewRMSNorm("n", 11)} {
		for _, p := range n.Params() {
			p.Normal(r, 1)
		}
		checkLayer(t, n, Shape{5, 7, 11}, normTwin(n))
	}
}

func TestActivation(t *testing.T) {
	for _, f := range []Activation{ReLU, GELU, SiLU} {
		checkLayer(t, f, Shape{1, 3, 100}, activationTwin(f))
	}
}

func TestGatedAndResidual(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	a, b, c := NewLinear("a", 6, 10, true, r), NewLinear("b", 6, 10, true, r), NewLinear("c", 10, 6, true, r)
	norm := NewRMSNorm("n", 6)
	l := Residual{Chain{norm, Gated{Chain{a, SiLU}, b}, c}}
	checkLayer(t, l, Shape{2, 4, 6}, both(identity, then(normTwin(norm), then(both(then(linearTwin(a), activationTwin(SiLU)), linearTwin(b), times), linearTwin(c))), plus))
}

func TestAttention(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 1))
	for _, test := range []struct {
		heads, kv int
		causal    bool
	}{{1, 1, false}, {2, 2, true}, {4, 2, true}, {4, 1, false}} {
		l, err := NewAttention("att", 8, test.heads, test.kv, true, r)
		if err != nil {
			t.Fatal(err)
		}
		if test.causal {
			l.Mask = attn.Causal()
		}
		in := Shape{2, 5, 8}
		checkLayer(t, l, in, attentionTwin(l, in, test.causal))
	}
}

// What does not fit is an error that says so.
func TestShapes(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 1))
	on := On{kernels.All()[0], NewMultiplier(asm.Levels()[0].Ops, nil), nil}
	for name, l := range map[string]Layer{
		"linear": NewLinear("l", 7, 5, false, r), "norm": NewLayerNorm("n", 9), "residual": Residual{NewLinear("l", 8, 5, false, r)},
		"chain": Chain{NewLinear("l", 8, 5, false, r), NewLinear("m", 8, 5, false, r)}, "gate": Gated{NewLinear("l", 8, 5, false, r), NewLinear("m", 8, 4, false, r)},
	} {
		if _, _, err := l.Plan(on, Shape{1, 3, 8}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, n := range [][3]int{{8, 3, 3}, {8, 4, 3}, {8, 0, 0}} {
		if _, err := NewAttention("a", n[0], n[1], n[2], false, r); err == nil {
			t.Errorf("attention of %v: no error", n)
		}
	}
}
