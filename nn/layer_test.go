package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/kernels"
	"attnlab/kernels/asm"

	"gonum.org/v1/gonum/diff/fd"
)

// A twin is a layer's forward pass in float64, as its documentation defines it. It maps rows to
// rows. It gets parameters through w, so that a gradient check can replace them.
type twin func(w func(*Param) [][]float64, x [][]float64) [][]float64

// wide returns a matrix in float64.
func wide(m Mat) [][]float64 {
	to := make([][]float64, m.Rows)
	for i := range to {
		for _, x := range m.Row(i) {
			to[i] = append(to[i], float64(x))
		}
	}
	return to
}

// loss returns Σ r_ij y_ij, whose gradient with respect to y is r.
func loss(r, y [][]float64) (sum float64) {
	for i := range r {
		for j := range r[i] {
			sum += r[i][j] * y[i][j]
		}
	}
	return sum
}

// bound is the allowed difference of a gradient or output from the twin's, relative to its largest
// element: about 32 roundings. The twin's gradients are central differences of fourth order in
// float64, precise to about 1e-10.
//
// Some gradients are 0 by cancellation, such as that of the keys' bias: a number added to all
// scores of a row changes no weight. Such a gradient is compared relative to the largest element of
// the gradient of the input.
const bound = 32 * 0x1p-24

// near compares a matrix with the twin's. If the twin's is 0 compared with other, the bound is
// relative to other.
func near(t *testing.T, what string, got Mat, want [][]float64, other float64) {
	t.Helper()
	if err := compared(what, got, want, other); err != nil {
		t.Error(err)
	}
}

// compared returns an error where near would fail.
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

// largestOf returns the largest magnitude of an element.
func largestOf(m [][]float64) (largest float64) {
	for i := range m {
		for _, x := range m[i] {
			largest = math.Max(largest, math.Abs(x))
		}
	}
	return largest
}

// differences returns the gradient of f with respect to the elements of m, by central differences.
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

// checkLayer compares a layer with its twin on the loops of every instruction set.
func checkLayer(t *testing.T, l Layer, in Shape, f twin) {
	t.Helper()
	known := map[*Param][][]float64{}
	eachISA(t, func(t *testing.T, ops *asm.Ops) {
		t.Helper()
		if err := check(ops, l, in, f, known); err != nil {
			t.Error(err)
		}
	})
}

// check compares a layer's output and its gradients with respect to the input and every parameter
// with its twin's. It also checks that two workers give the same bits, that Backward adds to
// gradients, and that nothing allocates. It returns the first error. known holds the twin's
// gradients by parameter, and that of the input at nil; check adds what it computes.
func check(ops *asm.Ops, l Layer, in Shape, f twin, known map[*Param][][]float64) error {
	r := rand.New(rand.NewPCG(7, 8))
	kernel, err := kernels.ByName("flash", ops.ISA)
	if err != nil {
		return err
	}
	x := random(r, in.Rows(), in.Dim, 0)
	pass, dim, err := l.Plan(On{Kernel: kernel, Products: NewMultiplier(ops, nil)}, in)
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
	gradient := func(p *Param, m [][]float64) [][]float64 {
		if known[p] == nil {
			known[p] = differences(m, func() float64 { return loss(dy64, f(w, x64)) })
		}
		return known[p]
	}
	wantX := gradient(nil, x64)
	if err := compared("gradient by the input", dx, wantX, 0); err != nil {
		return err
	}
	for _, p := range l.Params() {
		if err := compared("gradient by "+p.Name, p.Grad, gradient(p, own[p]), largestOf(wantX)); err != nil {
			return err
		}
	}

	team := attn.NewTeam(2)
	defer team.Close()
	other, _, err := l.Plan(On{Kernel: kernel, Products: NewMultiplier(ops, team)}, in)
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

// sameBits returns an error if two matrices differ in a bit.
func sameBits(what string, a, b Mat) error {
	for i := range a.Rows {
		for j, x := range a.Row(i) {
			if math.Float32bits(x) != math.Float32bits(b.Row(i)[j]) {
				return fmt.Errorf("%s %d, %d is %v, and another time %v", what, i, j, x, b.Row(i)[j])
			}
		}
	}
	return nil
}

func linearTwin(l *Linear) twin {
	return func(w func(*Param) [][]float64, x [][]float64) [][]float64 {
		weights, y := w(l.W), make([][]float64, len(x))
		for i := range x {
			y[i] = make([]float64, l.W.W.Cols)
			if l.B != nil {
				copy(y[i], w(l.B)[0])
			}
			for k, x := range x[i] {
				for j, w := range weights[k] {
					y[i][j] += x * w
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
					ReLU: math.Max(x, 0), GELU: x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))), SiLU: x / (1 + math.Exp(-x)),
				}[f])
			}
		}
		return y
	}
}

// then returns one twin after another.
func then(a, b twin) twin {
	return func(w func(*Param) [][]float64, x [][]float64) [][]float64 { return b(w, a(w, x)) }
}

// both returns the joined outputs of two twins on the same rows.
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

// identity returns a copy of the rows.
func identity(_ func(*Param) [][]float64, x [][]float64) [][]float64 {
	y := make([][]float64, len(x))
	for i := range x {
		y[i] = append(y[i], x[i]...)
	}
	return y
}

func plus(a, b float64) float64  { return a + b }
func times(a, b float64) float64 { return a * b }

// attentionTwin returns attention head by head: of x with itself, or with the rows of memory.
func attentionTwin(l *Attention, in Shape, memory *Param) twin {
	return func(w func(*Param) [][]float64, x [][]float64) [][]float64 {
		m := x
		if l.Cross {
			m = w(memory)
		}
		var q, k, v [][]float64
		if l.QKV == nil {
			q, k, v = linearTwin(l.Q)(w, x), linearTwin(l.K)(w, m), linearTwin(l.V)(w, m)
		} else {
			dq, dk := l.Q.W.W.Cols, l.K.W.W.Cols
			for _, row := range linearTwin(l.QKV)(w, x) {
				q, k, v = append(q, row[:dq]), append(k, row[dq:dq+dk]), append(v, row[dq+dk:])
			}
		}
		d, keys := len(q[0])/l.Heads, len(m)/in.Batch
		o := make([][]float64, len(q))
		for i := range o {
			o[i] = make([]float64, len(q[0]))
			first := i / in.Seq * keys
			last := first + keys - 1
			if l.Mask.Band {
				last = i
			}
			for h := range l.Heads {
				g := h / (l.Heads / l.KVHeads)
				sum := 0.0
				for j := first; j <= last; j++ {
					p := weight(l, q[i][h*d:][:d], k[j][g*d:][:d])
					sum += p
					for a := range d {
						o[i][h*d+a] += p * v[j][g*d+a]
					}
				}
				for a := 0; a < d && l.Linear == nil; a++ {
					o[i][h*d+a] /= sum
				}
			}
		}
		return linearTwin(l.Out)(w, o)
	}
}

// weight returns the weight of a key before the division by the sum: e^(q.k/√d). For products it is
// q.k/√d, which is not divided.
func weight(l *Attention, q, k []float64) float64 {
	s := 0.0
	for a := range q {
		s += q[a] * k[a] / math.Sqrt(float64(len(q)))
	}
	if l.Linear != nil {
		return s
	}
	return math.Exp(s)
}

// products is linear attention with features whose derivatives of all orders exist, as differences
// need. Features with a kink are tested with the kernels.
var products = &attn.Linear{Feature: attn.Identity, Unnormalised: true}

// twinOf returns the twin of a layer, also of combined layers.
func twinOf(l Layer, in Shape, memory *Param) twin {
	switch l := l.(type) {
	case *Linear:
		return linearTwin(l)
	case *Norm:
		return normTwin(l)
	case Activation:
		return activationTwin(l)
	case *Attention:
		return attentionTwin(l, in, memory)
	case Residual:
		return both(identity, twinOf(l.Layer, in, memory), plus)
	case Gated:
		return both(twinOf(l.A, in, memory), twinOf(l.B, in, memory), times)
	case Chain:
		var all twin = identity
		for _, next := range l {
			all = then(all, twinOf(next, in, memory))
		}
		return all
	}
	panic(fmt.Sprintf("there is no twin of a %T", l))
}

// withMemory is a layer that attends to a memory, which it lists as a parameter: its gradient is
// then checked like a parameter's.
type withMemory struct {
	Layer
	memory *Param
}

func (b withMemory) Params() []*Param { return append(b.Layer.Params(), b.memory) }

func (b withMemory) Plan(on On, in Shape) (Pass, int, error) {
	on.Memory = b.memory
	return b.Layer.Plan(on, in)
}

// linearly is a layer that runs on kernel linear of the same instruction set.
type linearly struct{ Layer }

func (l linearly) Plan(on On, in Shape) (p Pass, dim int, err error) {
	_, isa := on.Kernel.Name()
	if on.Kernel, err = kernels.ByName("linear", isa); err != nil {
		return nil, 0, err
	}
	return l.Layer.Plan(on, in)
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
	l := Residual{Chain{NewRMSNorm("n", 6), Gated{Chain{a, SiLU}, b}, c}}
	in := Shape{2, 4, 6}
	checkLayer(t, l, in, twinOf(l, in, nil))
}

func TestAttention(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 1))
	for _, test := range []struct {
		heads, kv                    int
		causal, fused, cross, linear bool
	}{
		{heads: 1, kv: 1},
		{heads: 2, kv: 2, causal: true},
		{heads: 4, kv: 2, causal: true},
		{heads: 4, kv: 1},
		{heads: 2, kv: 2, fused: true},
		{heads: 4, kv: 2, fused: true, causal: true},
		{heads: 2, kv: 2, cross: true},
		{heads: 4, kv: 1, cross: true},
		{heads: 2, kv: 1, linear: true},
		{heads: 2, kv: 2, linear: true, causal: true, fused: true},
		{heads: 2, kv: 2, linear: true, cross: true},
	} {
		t.Run(fmt.Sprintf("%+v", test), func(t *testing.T) {
			l, err := NewAttention("att", 8, test.heads, test.kv, true, r)
			if err != nil {
				t.Fatal(err)
			}
			if l.Cross = test.cross; test.causal {
				l.Mask = attn.Causal()
			}
			if test.fused {
				l.Fuse()
			}
			var layer Layer = l
			in, memory := Shape{2, 5, 8}, NewParam("memory", 2*7, 8).Normal(r, 1)
			if test.cross {
				layer = withMemory{layer, memory}
			}
			if test.linear {
				l.Linear = products
				layer = linearly{layer}
			}
			checkLayer(t, layer, in, attentionTwin(l, in, memory))
		})
	}
}

// TestFuse checks that fused projections give the same bits for outputs and gradients of weights,
// and the same gradient of the input except for the order of additions.
func TestFuse(t *testing.T) {
	eachISA(t, func(t *testing.T, ops *asm.Ops) {
		const rows, dim = 20, 24
		kernel, err := kernels.ByName("flash", ops.ISA)
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(6, 1))
		x, dy := random(r, rows, dim, 0), random(r, rows, dim, 0)
		run := func(fused bool) (l *Attention, y, dx Mat) {
			if l, err = NewAttention("a", dim, 6, 2, true, rand.New(rand.NewPCG(6, 2))); err != nil {
				t.Fatal(err)
			}
			l.Mask = attn.Causal()
			if fused {
				l.Fuse()
			}
			p, _, err := l.Plan(On{Kernel: kernel, Products: NewMultiplier(ops, nil)}, Shape{2, rows / 2, dim})
			if err != nil {
				t.Fatal(err)
			}
			return l, p.Forward(x), p.Backward(dy)
		}
		apart, y, dx := run(false)
		fused, yFused, dxFused := run(true)
		if err := sameBits("output", y, yFused); err != nil {
			t.Error(err)
		}
		for i, of := range []*Linear{apart.Q, apart.K, apart.V} {
			in := []*Linear{fused.Q, fused.K, fused.V}[i]
			for name, pair := range map[string][2]Mat{"w": {of.W.W, in.W.W}, "gradient of w": {of.W.Grad, in.W.Grad}, "gradient of b": {of.B.Grad, in.B.Grad}} {
				if err := sameBits(fmt.Sprint(name, " of projection ", i), pair[0], pair[1]); err != nil {
					t.Error(err)
				}
			}
		}
		near(t, "gradient by the input", dxFused, wide(dx), 0)
		var names []string
		for _, p := range fused.Params() {
			names = append(names, fmt.Sprint(p.Name, " ", p.W))
		}
		if want := []string{"a.qkv.w 24 x 40", "a.qkv.b 1 x 40", "a.o.w 24 x 24", "a.o.b 1 x 24"}; !slices.Equal(names, want) {
			t.Errorf("parameters %q, want %q", names, want)
		}
	})
}

// TestShapes checks that a shape that does not fit is an error that says so.
func TestShapes(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 1))
	on := On{Kernel: kernels.All()[0], Products: NewMultiplier(asm.Levels()[0].Ops, nil)}
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
	l, err := NewAttention("a", 8, 2, 2, false, r)
	if err != nil {
		t.Fatal(err)
	}
	l.Cross = true
	for name, test := range map[string]struct {
		memory *Param
		want   string
	}{
		"no memory": {nil, "without On.Memory"}, "rows of another width": {NewParam("m", 4, 7), "want rows of 8"}, "no whole sequences": {NewParam("m", 5, 8), "want rows of 2 sequences"},
	} {
		on.Memory = test.memory
		if _, _, err := l.Plan(on, Shape{2, 3, 8}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("cross-attention with %s: %v, want %q", name, err, test.want)
		}
	}
	l.Fuse()
	on.Memory = NewParam("m", 4, 8)
	if _, _, err := l.Plan(on, Shape{2, 3, 8}); err == nil || !strings.Contains(err.Error(), "do not Fuse") {
		t.Errorf("cross-attention, fused: %v", err)
	}
}
