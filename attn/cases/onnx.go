package cases

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sort"

	"attnlab/attn"
)

// An Outside is a case that was computed elsewhere: an ONNX node test with its expected outputs.
type Outside struct {
	Name, File string

	// Lacks names the feature that attnlab lacks for this case. Norm is a normalisation, which no
	// kernel computes. If one of these is set, nothing below is.
	Lacks string
	Norm  *Norm

	// The call for a kernel. Out, and the Stats that the case expects, hold Poison.
	Call

	// Raw is a second call for a case that expects the scores before masks and bias, or nil.
	Raw *Call

	expect []expected
}

// A Call is a problem and its operands.
type Call struct {
	Problem attn.Problem
	Args    *attn.Args
}

// An answer is what a kernel computed for an outside case.
type answer struct {
	a   *attn.Args
	raw *attn.Args // nil: not computed
}

// An expected output of a node, under its ONNX name.
type expected struct {
	name string
	want *attn.Tensor                    // in the layout of the operand to compare with
	got  func(given answer) *attn.Tensor // returns nil if the kernel did not write it
}

// A Result is the outcome of a kernel on an outside case.
type Result struct {
	// Ratio is the largest |error| / (1e-7 + 1e-3 |want|), the tolerance of ONNX. The kernel is
	// right if it is at most 1.
	Ratio   float64
	Where   string   // the number with that ratio
	Skipped []string // outputs that the kernel cannot write, by name
	Calls   []Call   // the kernel's calls, without the by-products that it does not compute
}

// The tolerance of ONNX's own node tests.
const (
	onnxRel = 1e-3
	onnxAbs = 1e-7
)

// Run lets a kernel compute the case and compares every output that the case expects. A kernel need
// not compute weights or scores: Skipped then names that output. Any other refusal is the error.
// Outputs stay in Calls for a second judge.
func (o *Outside) Run(k attn.Kernel) (r Result, err error) {
	switch {
	case o.Lacks != "":
		return r, fmt.Errorf("%s: %w: needs %s", o.Name, attn.ErrUnsupported, o.Lacks)
	case o.Norm != nil:
		return r, fmt.Errorf("%s: %w: a normalisation is no call of attention: compare it with Norm.Judge", o.Name, attn.ErrUnsupported)
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: panic: %v", o.Name, p)
		}
	}()
	given, err := o.ask(k, &r)
	if err != nil {
		return r, fmt.Errorf("%s: %w", o.Name, err)
	}
	for _, e := range o.expect {
		got := e.got(given)
		if got == nil {
			r.Skipped = append(r.Skipped, e.name)
			continue
		}
		if got.Shape() != e.want.Shape() {
			return r, fmt.Errorf("%s: the case expects %s of shape %s, and the problem gives it %s", o.Name, e.name, e.want.Shape(), got.Shape())
		}
		buf := make([]float32, got.D)
		Rows(e.want, func(b, s, h int, row []float32) {
			for c, g := range got.Read(buf, b, s, h) {
				if x := onnxRatio(g, row[c], e.want.Type); !(x <= r.Ratio) {
					r.Ratio, r.Where = x, fmt.Sprintf("%s[batch %d, head %d, row %d, %d]: got %v, want %v", e.name, b, h, s, c, g, row[c])
				}
			}
		})
	}
	return r, nil
}

// ask runs the calls of the case.
func (o *Outside) ask(k attn.Kernel, r *Result) (given answer, err error) {
	const matrices = attn.WantWeights | attn.WantScores
	a := *o.Args
	c := Call{o.Problem, &a}
	given.a = c.Args
	plan, err := k.Plan(c.Problem, nil)
	if errors.Is(err, attn.ErrUnsupported) && c.Problem.Want&matrices != 0 {
		c.Problem.Want &^= matrices
		c.Args.Stats.Weights, c.Args.Stats.Scores = attn.Tensor{}, attn.Tensor{}
		plan, err = k.Plan(c.Problem, nil)
	}
	if err != nil {
		return given, err
	}
	forward(plan, c.Args)
	r.Calls = append(r.Calls, c)
	if o.Raw == nil {
		return given, nil
	}
	plan, err = k.Plan(o.Raw.Problem, nil)
	if errors.Is(err, attn.ErrUnsupported) {
		return given, nil
	}
	if err == nil {
		forward(plan, o.Raw.Args)
	}
	given.raw = o.Raw.Args
	r.Calls = append(r.Calls, *o.Raw)
	return given, err
}

// forward runs one call and closes the plan.
func forward(plan attn.Plan, a *attn.Args) {
	if c, ok := plan.(io.Closer); ok {
		defer c.Close()
	}
	plan.Forward(a)
}

// Expect copies the expected outputs into Args, as if a kernel had written them, so that the oracle
// can judge them.
func (o *Outside) Expect() {
	given := answer{a: o.Args}
	if o.Raw != nil {
		given.raw = o.Raw.Args
	}
	for _, e := range o.expect {
		if to := e.got(given); to != nil && to != &o.Args.K && to != &o.Args.V {
			Rows(e.want, func(b, s, h int, row []float32) { to.Write(row, b, s, h) })
		}
	}
}

// onnxRatio returns the error of a number over its tolerance. Two right answers may be neighbouring
// bf16 numbers, which are further apart than ONNX's tolerance.
func onnxRatio(got, want float32, typ attn.DType) float64 {
	rel := onnxRel
	if typ == attn.BF16 {
		rel = 0x1p-7
	}
	switch {
	case got == want, got != got && want != want:
		return 0
	case got != got, want != want, math.IsInf(float64(got-want), 0):
		return math.Inf(1)
	}
	return math.Abs(float64(got)-float64(want)) / (onnxAbs + rel*math.Abs(float64(want)))
}

// ReadONNX reads node tests from a JSON file, or from every *.json file of a folder. A file is an
// array of cases. Tensors are raw little-endian bytes in base64:
//
//	[{"case": "name",
//	  "node": {"op": "Attention", "inputs": ["Q","K","V","mask"], "outputs": ["Y"],
//	           "attrs": {"is_causal": 1}},
//	  "inputs": [{"name": "Q", "dtype": "f32", "shape": [2,3,4,8], "b64": "..."}],
//	  "outputs": [{"name": "Y", ...}]}]
//
// Node inputs are positional; "" is an input that is left out. Elements are f32, f64 (rounded to
// f32), f16 or bf16.
//
// The operators Attention, LinearAttention with the plain rule, Softmax, LogSoftmax and
// RotaryEmbedding become calls of attention, which kernels compute. LayerNormalization and
// RMSNormalization become a Norm. No case is dropped: if attnlab lacks a feature for it, Lacks
// names the feature.
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
