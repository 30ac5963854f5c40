package cases

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"attnlab/attn"
)

// An Outside is a case that somebody else computed: an ONNX node test with its expected outputs.
type Outside struct {
	Name, File string
	Lacks      string // the feature that attnlab lacks for this case, by name; nothing below is set then
	Problem    attn.Problem
	Args       *attn.Args // Out, and Stats.Weights where the case expects them, are laid out and hold Poison
	State      []float32  // linear: the state before the first row, or nil
	expect     []expected
}

// An expected output of a node, by its ONNX name.
type expected struct {
	name string
	want *attn.Tensor                                     // in the layout of the operand that it is compared with
	got  func(a *attn.Args, state []float32) *attn.Tensor // nil result: the kernel did not write it
}

// A Result is how a kernel did on an outside case.
type Result struct {
	Ratio   float64  // worst |error| / (1e-7 + 1e-3 |want|), the tolerance of ONNX; right means at most 1
	Where   string   // the number with that ratio
	Skipped []string // outputs that the kernel cannot write, by name
}

// The tolerance of ONNX's own node tests.
const (
	onnxRel = 1e-3
	onnxAbs = 1e-7
)

// Run lets a kernel answer and compares every output that the case expects. A kernel that does not hand out weights is excused from that
// output, which Skipped then names. Any other refusal is the error. Outputs stay in Args, for a second judge.
func (o *Outside) Run(k attn.Kernel) (r Result, err error) {
	if o.Lacks != "" {
		return r, fmt.Errorf("%s: %w: %s", o.Name, attn.ErrUnsupported, o.Lacks)
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: panic: %v", o.Name, p)
		}
	}()
	p, a := o.Problem, *o.Args
	plan, err := k.Plan(p, nil)
	if errors.Is(err, attn.ErrUnsupported) && p.Want&attn.WantWeights != 0 {
		p.Want &^= attn.WantWeights
		a.Stats.Weights = attn.Tensor{}
		plan, err = k.Plan(p, nil)
	}
	if err != nil {
		return r, fmt.Errorf("%s: %w", o.Name, err)
	}
	if c, ok := plan.(io.Closer); ok {
		defer c.Close()
	}
	var state []float32
	if rec, ok := plan.(attn.Recurrent); ok {
		if state = make([]float32, rec.StateLen()); o.State != nil && len(o.State) != len(state) {
			return r, fmt.Errorf("%s: a state of %d numbers, the plan has %d", o.Name, len(o.State), len(state))
		}
		copy(state, o.State)
		rec.Step(&a, state)
	} else if o.State != nil {
		return r, fmt.Errorf("%s: %w: the plan cannot start from a state", o.Name, attn.ErrUnsupported)
	} else {
		plan.Forward(&a)
	}
	for _, e := range o.expect {
		got := e.got(&a, state)
		if got == nil {
			r.Skipped = append(r.Skipped, e.name)
			continue
		}
		if got.Shape() != e.want.Shape() {
			return r, fmt.Errorf("%s: the case expects %s of shape %s, the problem makes it %s", o.Name, e.name, e.want.Shape(), got.Shape())
		}
		Rows(e.want, func(b, s, h int, row []float32) {
			for c, w := range row {
				g := got.Row(b, s, h)[c]
				if x := onnxRatio(g, w); !(x <= r.Ratio) {
					r.Ratio, r.Where = x, fmt.Sprintf("%s[batch %d, head %d, row %d, %d]: got %v, want %v", e.name, b, h, s, c, g, w)
				}
			}
		})
	}
	return r, nil
}

// Expect copies the expected outputs into Args, as if a kernel had written them, so that the oracle can judge the outside world.
func (o *Outside) Expect() {
	for _, e := range o.expect {
		if to := e.got(o.Args, nil); to != nil && to != &o.Args.K && to != &o.Args.V {
			Rows(e.want, func(b, s, h int, row []float32) { copy(to.Row(b, s, h), row) })
		}
	}
}

func onnxRatio(got, want float32) float64 {
	switch {
	case got == want, got != got && want != want:
		return 0
	case got != got, want != want, math.IsInf(float64(got-want), 0):
		return math.Inf(1)
	}
	return math.Abs(float64(got)-float64(want)) / (onnxAbs + onnxRel*math.Abs(float64(want)))
}

// ReadONNX reads node tests from a JSON file, or from every *.json of a folder. A file is an array of cases, tensors being raw little-endian
// bytes in base64:
//
//	[{"case": "name", "node": {"op": "Attention", "inputs": ["Q","K","V","mask"], "outputs": ["Y"], "attrs": {"is_causal": 1}},
//	  "inputs": [{"name": "Q", "dtype": "f32", "shape": [2,3,4,8], "b64": "..."}], "outputs": [{"name": "Y", ...}]}]
//
// Node inputs are positional, "" for one left out. No case is dropped: one that asks for what attnlab does not do says so in Lacks.
func ReadONNX(path string) ([]Outside, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	files := []string{path}
	if info.IsDir() {
		if files, err = filepath.Glob(filepath.Join(path, "*.json")); err != nil {
			return nil, err
		}
		sort.Strings(files)
		if len(files) == 0 {
			return nil, fmt.Errorf("%s: no *.json file in this folder", path)
		}
	}
	var all []Outside
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		var nodes []onnxTest
		if err := json.Unmarshal(text, &nodes); err != nil {
			return nil, fmt.Errorf("%s: not a list of node tests: %w", f, err)
		}
		for _, n := range nodes {
			o, err := n.outside()
			if err != nil {
				return nil, fmt.Errorf("%s: case %s: %w", f, n.Case, err)
			}
			o.Name, o.File = n.Case, filepath.Base(f)
			all = append(all, o)
		}
	}
	return all, nil
}

type onnxTest struct {
	Case string
	Node struct {
		Op              string
		Inputs, Outputs []string
		Attrs           map[string]any
	}
	Inputs, Outputs []onnxTensor
}

type onnxTensor struct {
	Name, DType string
	Shape       []int
	B64         []byte
}

// floats, bools and ints decode a tensor of that type.
func (t *onnxTensor) floats() []float32 {
	x := make([]float32, len(t.B64)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.B64[4*i:]))
	}
	return x
}

func (t *onnxTensor) bools() []bool {
	x := make([]bool, len(t.B64))
	for i, b := range t.B64 {
		x[i] = b != 0
	}
	return x
}

func (t *onnxTensor) ints() ([]int32, error) {
	if t.DType != "i64" {
		return nil, fmt.Errorf("tensor %s: dtype %s, want i64", t.Name, t.DType)
	}
	x := make([]int32, len(t.B64)/8)
	for i := range x {
		n := int64(binary.LittleEndian.Uint64(t.B64[8*i:]))
		if x[i] = int32(n); int64(x[i]) != n {
			return nil, fmt.Errorf("tensor %s: %d does not fit 32 bits", t.Name, n)
		}
	}
	return x, nil
}

func (t *onnxTensor) check() error {
	size, ok := map[string]int{"f32": 4, "f16": 2, "bf16": 2, "f64": 8, "i64": 8, "i32": 4, "bool": 1}[t.DType]
	if !ok {
		return fmt.Errorf("tensor %s: unknown dtype %q", t.Name, t.DType)
	}
	n := size
	for _, d := range t.Shape {
		if d < 0 || d > 1<<20 || n > 1<<32 {
			return fmt.Errorf("tensor %s: shape %v is not plausible", t.Name, t.Shape)
		}
		n *= d
	}
	if len(t.B64) != n {
		return fmt.Errorf("tensor %s: %d bytes, shape %v of %s has %d", t.Name, len(t.B64), t.Shape, t.DType, n)
	}
	return nil
}

// A lack ends the reading of a case that attnlab cannot do.
type lack string

func (l lack) Error() string { return string(l) }

func (n *onnxTest) outside() (o Outside, err error) {
	for _, t := range slices.Concat(n.Inputs, n.Outputs) {
		if err := t.check(); err != nil {
			return o, err
		}
	}
	switch n.Node.Op {
	case "Attention":
		err = n.attention(&o)
	case "LinearAttention":
		err = n.linear(&o)
	default:
		err = lack("operator " + n.Node.Op)
	}
	var l lack
	if errors.As(err, &l) {
		return Outside{Lacks: string(l)}, nil
	}
	return o, err
}

// at finds the tensor at a position of the node, or nil.
func at(names []string, tensors []onnxTensor, i int) *onnxTensor {
	if i >= len(names) || names[i] == "" {
		return nil
	}
	for t := range tensors {
		if tensors[t].Name == names[i] {
			return &tensors[t]
		}
	}
	return nil
}

func (n *onnxTest) input(i int) *onnxTensor { return at(n.Node.Inputs, n.Inputs, i) }

func (n *onnxTest) output(i int) *onnxTensor { return at(n.Node.Outputs, n.Outputs, i) }

// attrs checks that a node has no attribute but these, so that none is ignored.
func (n *onnxTest) attrs(known ...string) error {
	for a := range n.Node.Attrs {
		if !slices.Contains(known, a) {
			return lack("attribute " + a)
		}
	}
	return nil
}

func (n *onnxTest) number(attr string, otherwise float64) (float64, error) {
	switch x := n.Node.Attrs[attr].(type) {
	case nil:
		return otherwise, nil
	case float64:
		return x, nil
	default:
		return 0, fmt.Errorf("attribute %s is %v, want a number", attr, x)
	}
}

func (n *onnxTest) integer(attr string, otherwise int) (int, error) {
	x, err := n.number(attr, float64(otherwise))
	if err == nil && x != math.Trunc(x) {
		err = fmt.Errorf("attribute %s is %v, want an integer", attr, x)
	}
	return int(x), err
}

// scale reads the attribute of that name, in which 0 would mean 0 and not the default.
func (n *onnxTest) scale() (float64, error) {
	x, err := n.number("scale", math.NaN())
	switch {
	case err != nil || math.IsNaN(x):
		return 0, err
	case x == 0:
		return 0, lack("scale 0")
	}
	return x, nil
}

// operand views a float tensor as [batch, sequence, head, dim]: rank 4 is [batch, head, sequence, dim], rank 3 is
// [batch, sequence, head*dim].
func operand(t *onnxTensor, name string, heads int) (attn.Tensor, error) {
	if t == nil {
		return attn.Tensor{}, fmt.Errorf("%s is missing", name)
	}
	if t.DType != "f32" {
		return attn.Tensor{}, lack(t.DType + " operands")
	}
	s := t.Shape
	switch {
	case len(s) == 4:
		return attn.Wrap(attn.BHSD, t.floats(), s[0], s[2], s[1], s[3]), nil
	case len(s) == 3 && heads > 0 && s[2]%heads == 0:
		return attn.Wrap(attn.BSHD, t.floats(), s[0], s[1], heads, s[2]/heads), nil
	}
	return attn.Tensor{}, fmt.Errorf("%s: shape %v with %d heads, want [batch, head, seq, dim] or [batch, seq, head*dim]", name, s, heads)
}

func poisoned(like attn.Tensor) attn.Tensor {
	like.Data = slices.Clone(like.Data)
	Rows(&like, func(_, _, _ int, row []float32) { fill(row, Poison) })
	return like
}

func (n *onnxTest) attention(o *Outside) error {
	if err := n.attrs("is_causal", "scale", "softcap", "qk_matmul_output_mode", "softmax_precision", "left_window_size", "right_window_size",
		"q_num_heads", "kv_num_heads"); err != nil {
		return err
	}
	var causal, mode, left, right, hq, hkv int
	for _, a := range []struct {
		to        *int
		name      string
		otherwise int
	}{
		{&causal, "is_causal", 0},
		{&mode, "qk_matmul_output_mode", 0},
		{&left, "left_window_size", -1},
		{&right, "right_window_size", -1},
		{&hq, "q_num_heads", 0},
		{&hkv, "kv_num_heads", 0},
	} {
		var err error
		if *a.to, err = n.integer(a.name, a.otherwise); err != nil {
			return err
		}
	}
	a := new(attn.Args)
	for i, t := range []*attn.Tensor{&a.Q, &a.K, &a.V} {
		var err error
		if *t, err = operand(n.input(i), "QKV"[i:i+1], []int{hq, hkv, hkv}[i]); err != nil {
			return err
		}
	}
	switch cap, err := n.number("softcap", 0); {
	case err != nil:
		return err
	case cap != 0:
		return lack("softcap")
	}
	switch precision, err := n.integer("softmax_precision", 1); {
	case err != nil:
		return err
	case precision != 1: // 1 is float32
		return lack(fmt.Sprintf("softmax_precision %d", precision))
	}
	past := 0
	if n.input(4) != nil {
		var err error
		if past, err = n.prepend(a, hkv); err != nil {
			return err
		}
	}
	p := &o.Problem
	*p = attn.Problem{Batch: a.Q.B, SeqQ: a.Q.S, SeqKV: a.K.S, HeadsQ: a.Q.H, HeadsKV: a.K.H, Dim: a.Q.D, DimV: a.V.D}
	var err error
	if p.Score.Scale, err = n.scale(); err != nil {
		return err
	}
	if causal != 0 {
		right = 0
	}
	if left >= 0 || right >= 0 {
		p.Mask = attn.Window(max(left, attn.Unbounded), max(right, attn.Unbounded))
	}
	if err := n.positions(p, a, past); err != nil {
		return err
	}
	if err := n.mask(p, a); err != nil {
		return err
	}
	y, err := operand(n.output(0), "Y", a.Q.H)
	if err != nil {
		return err
	}
	a.Out = poisoned(y)
	o.expect = append(o.expect, expected{"Y", &y, func(a *attn.Args, _ []float32) *attn.Tensor { return &a.Out }})
	for i, of := range []func(a *attn.Args, _ []float32) *attn.Tensor{
		func(a *attn.Args, _ []float32) *attn.Tensor { return &a.K },
		func(a *attn.Args, _ []float32) *attn.Tensor { return &a.V },
	} {
		if present := n.output(1 + i); present != nil {
			want, err := operand(present, present.Name, a.K.H)
			if err != nil {
				return err
			}
			o.expect = append(o.expect, expected{present.Name, &want, of})
		}
	}
	if qk := n.output(3); qk != nil {
		if mode != 3 {
			return lack(fmt.Sprintf("raw scores output (qk_matmul_output_mode %d)", mode))
		}
		want, err := operand(qk, qk.Name, 0)
		if err != nil {
			return err
		}
		p.Want |= attn.WantWeights
		a.Stats.Weights = poisoned(want)
		o.expect = append(o.expect, expected{qk.Name, &want, func(a *attn.Args, _ []float32) *attn.Tensor {
			if a.Stats.Weights.Data == nil {
				return nil
			}
			return &a.Stats.Weights
		}})
	}
	o.Args = a
	return errors.Join(p.Validate(), p.Check(a))
}

// prepend joins the cache and the new rows of K and V, which is what attnlab calls K and V.
func (n *onnxTest) prepend(a *attn.Args, heads int) (int, error) {
	rows := 0
	for i, t := range []*attn.Tensor{&a.K, &a.V} {
		past, err := operand(n.input(4+i), "past", heads)
		if err != nil {
			return 0, err
		}
		if past.B != t.B || past.H != t.H || past.D != t.D || i > 0 && past.S != rows {
			return 0, fmt.Errorf("past %s does not fit %s", past.Shape(), t.Shape())
		}
		rows = past.S
		whole := attn.New(attn.BHSD, t.B, rows+t.S, t.H, t.D)
		Rows(&past, func(b, s, h int, row []float32) { copy(whole.Row(b, s, h), row) })
		Rows(t, func(b, s, h int, row []float32) { copy(whole.Row(b, rows+s, h), row) })
		*t = whole
	}
	return rows, nil
}

// positions says where the queries stand: after the cache; at the end of the keys in use, which may leave the first ones before key 0; or,
// without either, with query i on key i.
func (n *onnxTest) positions(p *attn.Problem, a *attn.Args, past int) error {
	used := n.input(6)
	switch {
	case used != nil && past > 0:
		return lack("past_key together with nonpad_kv_seqlen")
	case used != nil:
		var err error
		p.Lengths = true
		if a.KLen, err = used.ints(); err != nil {
			return err
		}
	case past > 0 && p.Mask.Band:
		p.Lengths, a.QPos = true, slices.Repeat([]int32{int32(past)}, p.Batch)
	default:
		p.Mask.Align = attn.TopLeft
	}
	return nil
}

// mask turns attn_mask into an element mask or a bias. One that is shorter than the keys hides the rest.
func (n *onnxTest) mask(p *attn.Problem, a *attn.Args) error {
	m := n.input(3)
	if m == nil {
		return nil
	}
	dims := slices.Clone(m.Shape)
	if len(dims) == 0 {
		return errors.New("attn_mask has no dimension")
	}
	last := dims[len(dims)-1]
	dims[len(dims)-1] = max(last, p.SeqKV)
	var err error
	switch m.DType {
	case "bool":
		p.Mask.Bitmap = attn.BoolBitmap
		a.Allowed, err = attn.BoolMask(widened(m.bools(), last, p.SeqKV, false), dims...)
	case "f32":
		p.Score.Terms |= attn.TermBias
		a.Terms.Bias, err = attn.BiasTensor(widened(m.floats(), last, p.SeqKV, -inf), dims...)
	default:
		return lack(m.DType + " operands")
	}
	return err
}

// widened appends pad to each row until it is width long.
func widened[T any](x []T, row, width int, pad T) []T {
	if row >= width {
		return x
	}
	var wide []T
	for len(x) > 0 && row > 0 {
		wide = append(append(wide, x[:row]...), slices.Repeat([]T{pad}, width-row)...)
		x = x[row:]
	}
	return wide
}

func (n *onnxTest) linear(o *Outside) error {
	rule, ok := n.Node.Attrs["update_rule"].(string)
	if !ok {
		rule = "gated_delta" // the default of ONNX
	}
	if rule != "linear" {
		return lack("update rule " + rule)
	}
	if err := n.attrs("update_rule", "scale", "q_num_heads", "kv_num_heads", "chunk_size"); err != nil {
		return err
	}
	if n.input(4) != nil || n.input(5) != nil {
		return errors.New("update rule linear takes no decay and no beta")
	}
	hq, err := n.integer("q_num_heads", 0)
	if err != nil {
		return err
	}
	hkv, err := n.integer("kv_num_heads", 0)
	if err != nil {
		return err
	}
	a := new(attn.Args)
	for i, t := range []*attn.Tensor{&a.Q, &a.K, &a.V} {
		if *t, err = operand(n.input(i), []string{"query", "key", "value"}[i], []int{hq, hkv, hkv}[i]); err != nil {
			return err
		}
	}
	y, err := operand(n.output(0), "output", hq)
	if err != nil {
		return err
	}
	a.Out = poisoned(y)
	o.expect = append(o.expect, expected{"output", &y, func(a *attn.Args, _ []float32) *attn.Tensor { return &a.Out }})
	p := &o.Problem
	*p = attn.Problem{
		Op: attn.OpLinear, Batch: a.Q.B, SeqQ: a.Q.S, SeqKV: a.K.S, HeadsQ: a.Q.H, HeadsKV: a.K.H, Dim: a.Q.D, DimV: a.V.D,
		Mask: attn.Causal(), Linear: attn.Linear{Feature: attn.Identity, Unnormalised: true},
	}
	if p.Score.Scale, err = n.scale(); err != nil {
		return err
	}
	if past := n.input(3); past != nil {
		if past.DType != "f32" {
			return lack(past.DType + " operands")
		}
		o.State = past.floats()
	}
	if present := n.output(1); present != nil {
		want, err := operand(present, present.Name, 0)
		if err != nil {
			return err
		}
		o.expect = append(o.expect, expected{present.Name, &want, func(_ *attn.Args, state []float32) *attn.Tensor {
			if state == nil {
				return nil
			}
			got := want
			got.Data = state
			return &got
		}})
	}
	o.Args = a
	return errors.Join(p.Validate(), p.Check(a))
}
