package cases_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/attn/attntest/mutants"
	"attnlab/attn/cases"
	"attnlab/attn/oracle"
	"attnlab/kernels/naive"
	"pgregory.net/rapid"
)

type object = map[string]any

func tensor(name, dtype string, shape []int, data any) object {
	var raw []byte
	switch x := data.(type) {
	case []float32:
		for _, v := range x {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
		}
	case []int64:
		for _, v := range x {
			raw = binary.LittleEndian.AppendUint64(raw, uint64(v))
		}
	case []byte:
		raw = x
	}
	return object{"name": name, "dtype": dtype, "shape": shape, "b64": raw}
}

func node(op string, attrs object, outputs []string, inputs ...string) object {
	return object{"op": op, "inputs": inputs, "outputs": outputs, "attrs": attrs}
}

func read(t *testing.T, tests ...object) []cases.Outside {
	t.Helper()
	o, err := tryRead(t, tests...)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func tryRead(t *testing.T, tests ...object) ([]cases.Outside, error) {
	t.Helper()
	text, err := json.Marshal(tests)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "cases.json")
	if err := os.WriteFile(file, text, 0o666); err != nil {
		t.Fatal(err)
	}
	return cases.ReadONNX(file)
}

// TestReadONNX checks cases with scores of 0. Weights are then equal, so answers are means that a
// reader can verify. Keys hold 0; values count 1, 2, 3.
func TestReadONNX(t *testing.T) {
	zeros := func(n int) []float32 { return make([]float32, n) }
	qkv := func(nq, nk int) []object {
		v := zeros(nk)
		for i := range v {
			v[i] = float32(i + 1)
		}
		return []object{
			tensor("Q", "f32", []int{1, 1, nq, 1}, zeros(nq)),
			tensor("K", "f32", []int{1, 1, nk, 1}, zeros(nk)),
			tensor("V", "f32", []int{1, 1, nk, 1}, v),
		}
	}
	y := func(want ...float32) object { return tensor("Y", "f32", []int{1, 1, len(want), 1}, want) }
	plain := []string{"Y"}
	for _, c := range []struct {
		name   string
		node   object
		in     []object
		out    []object
		ranges [][2]int // the keys that each query sees
	}{
		{"all keys", node("Attention", object{}, plain, "Q", "K", "V"), qkv(2, 3), []object{y(2, 2)}, [][2]int{{0, 3}, {0, 3}}},
		{"causal is top-left", node("Attention", object{"is_causal": 1}, plain, "Q", "K", "V"), qkv(2, 3), []object{y(1, 1.5)}, [][2]int{{0, 1}, {0, 2}}},
		{
			"window", node("Attention", object{"left_window_size": 1, "right_window_size": 1}, plain, "Q", "K", "V"),
			qkv(3, 4),
			[]object{y(1.5, 2, 3)},
			[][2]int{{0, 2}, {0, 3}, {1, 4}},
		},
		{
			"lengths give positions before the first key", node("Attention", object{"is_causal": 1}, plain, "Q", "K", "V", "", "", "", "N"),
			append(qkv(3, 4), tensor("N", "i64", []int{1}, []int64{2})),
			[]object{y(0, 1, 1.5)},
			[][2]int{{0, 0}, {0, 1}, {0, 2}},
		},
		{
			"a short mask hides the rest", node("Attention", object{}, plain, "Q", "K", "V", "M"),
			append(qkv(2, 3), tensor("M", "bool", []int{2, 2}, []byte{1, 1, 0, 1})),
			[]object{y(1.5, 2)},
			[][2]int{{0, 2}, {1, 2}},
		},
		{
			"a short bias hides the rest", node("Attention", object{}, plain, "Q", "K", "V", "M"),
			append(qkv(2, 3), tensor("M", "f32", []int{1, 2}, []float32{7, 7})),
			[]object{y(1.5, 1.5)},
			[][2]int{{0, 2}, {0, 2}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := read(t, object{"case": c.name, "node": c.node, "inputs": c.in, "outputs": c.out})[0]
			if o.Lacks != "" {
				t.Fatal(o.Lacks)
			}
			r, err := o.Run(naive.New())
			if err != nil || !(r.Ratio <= 1) || len(r.Skipped) > 0 {
				t.Errorf("%+v, %v", r, err)
			}
			for i, want := range c.ranges {
				if o.Problem.Mask.Bitmap != attn.NoBitmap || o.Problem.Score.Terms != 0 {
					break
				}
				if lo, hi := o.Args.Visible(&o.Problem, 0, i); lo != want[0] && want[0] != want[1] || hi-lo != want[1]-want[0] {
					t.Errorf("query %d sees [%d,%d), want %v", i, lo, hi, want)
				}
			}
			// A wrong expectation must be noticed.
			wrong := y(slices.Repeat([]float32{99}, o.Args.Q.S)...)
			o = read(t, object{"case": c.name, "node": c.node, "inputs": c.in, "outputs": []object{wrong}})[0]
			if r, err := o.Run(naive.New()); err != nil || r.Ratio <= 1 {
				t.Errorf("expected 99s: %+v, %v", r, err)
			}
		})
	}
}

func TestReadONNXCache(t *testing.T) {
	f := func(name string, shape []int, x ...float32) object { return tensor(name, "f32", shape, x) }
	o := read(t, object{
		"case": "past in four dimensions, new rows in three, two heads",
		"node": node("Attention", object{"is_causal": 1, "q_num_heads": 2, "kv_num_heads": 2, "qk_matmul_output_mode": 3},
			[]string{"Y", "PK", "PV", "W"}, "Q", "K", "V", "", "K0", "V0"),
		"inputs": []object{
			f("Q", []int{1, 1, 2}, 0, 0), f("K", []int{1, 2, 2}, 0, 0, 0, 0), f("V", []int{1, 2, 2}, 5, 50, 6, 60),
			f("K0", []int{1, 2, 1, 1}, 0, 0), f("V0", []int{1, 2, 1, 1}, 1, 10),
		},
		"outputs": []object{
			f("Y", []int{1, 1, 2}, 3, 30), f("PK", []int{1, 2, 3, 1}, 0, 0, 0, 0, 0, 0), f("PV", []int{1, 2, 3, 1}, 1, 5, 6, 10, 50, 60),
			// The query is at the position of the first key after the past.
			f("W", []int{1, 2, 1, 3}, 0.5, 0.5, 0, 0.5, 0.5, 0),
		},
	})[0]
	if r, err := o.Run(naive.New()); o.Lacks != "" || err != nil || !(r.Ratio <= 1) || len(r.Skipped) != 0 {
		t.Errorf("%q %+v %v", o.Lacks, r, err)
	}
	r, err := o.Run(weightless{naive.New()})
	if err != nil || !(r.Ratio <= 1) || !slices.Equal(r.Skipped, []string{"W"}) {
		t.Errorf("without weights: %+v %v", r, err)
	}
}

// TestReadONNXMatrix checks the modes of qk_matmul_output for one query and two keys. The scores
// are 0 and 4 before the softcap and 0 and 2 tanh 2 behind it. The mask hides the second key.
func TestReadONNXMatrix(t *testing.T) {
	capped := float32(2 * math.Tanh(2))
	f := func(name string, x ...float32) object { return tensor(name, "f32", []int{1, 1, len(x), 1}, x) }
	for mode, want := range [][]float32{{0, 4}, {0, capped}, {0, float32(math.Inf(-1))}, {1, 0}} {
		o := read(t, object{
			"case": "x",
			"node": node("Attention", object{"scale": 2, "softcap": 2, "qk_matmul_output_mode": mode}, []string{"Y", "", "", "S"}, "Q", "K", "V", "M"),
			"inputs": []object{
				f("Q", 1), f("K", 0, 2), f("V", 3, 5), tensor("M", "bool", []int{2}, []byte{1, 0}),
			},
			"outputs": []object{f("Y", 3), tensor("S", "f32", []int{1, 1, 1, 2}, want)},
		})[0]
		if r, err := o.Run(naive.New()); o.Lacks != "" || err != nil || !(r.Ratio <= 1) || len(r.Skipped) != 0 {
			t.Errorf("mode %d: %q %+v %v", mode, o.Lacks, r, err)
		}
		if r, err := o.Run(weightless{naive.New()}); err != nil || !slices.Equal(r.Skipped, []string{"S"}) {
			t.Errorf("mode %d, from a kernel without matrices: %+v %v", mode, r, err)
		}
	}
}

// TestReadONNXTypes checks operands of other types: those of 16 bits stay as they are, those of 64
// bits are rounded. Two keys of the same score give the mean of 1 and 2.
func TestReadONNXTypes(t *testing.T) {
	// The numbers 1, 2 and 1.5.
	half := map[string][]byte{"f16": {0x00, 0x3c, 0x00, 0x40, 0x00, 0x3e}, "bf16": {0x80, 0x3f, 0x00, 0x40, 0xc0, 0x3f}}
	double := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, math.Float64bits(1)), math.Float64bits(2))
	half["f64"] = binary.LittleEndian.AppendUint64(double, math.Float64bits(1.5))
	for typ, want := range map[string]attn.DType{"f16": attn.F16, "bf16": attn.BF16, "f64": attn.F32} {
		size := len(half[typ]) / 3
		x := func(name string, from, n int) object {
			return tensor(name, typ, []int{1, 1, n, 1}, half[typ][from*size:][:n*size])
		}
		same := make([]byte, 2*size)
		o := read(t, object{
			"case": typ, "node": node("Attention", object{"scale": 0, "softmax_precision": 11}, []string{"Y"}, "Q", "K", "V"),
			"inputs":  []object{x("Q", 0, 1), tensor("K", typ, []int{1, 1, 2, 1}, same), x("V", 0, 2)},
			"outputs": []object{x("Y", 2, 1)},
		})[0]
		if r, err := o.Run(naive.New()); o.Lacks != "" || err != nil || r.Ratio != 0 {
			t.Errorf("%s: %q %+v %v", typ, o.Lacks, r, err)
		}
		if p := o.Problem; p.Q != want || p.KV != want || p.Out != want {
			t.Errorf("%s is read as %v, %v and %v", typ, p.Q, p.KV, p.Out)
		}
		if q := o.Args.Q.Read(make([]float32, 1), 0, 0, 0)[0]; q != 0 {
			t.Errorf("%s: of scale 0, a query of %v", typ, q)
		}
	}
}

func TestReadONNXSoftmax(t *testing.T) {
	f := func(name string, shape []int, x ...float32) object { return tensor(name, "f32", shape, x) }
	log := func(x float64) float32 { return float32(math.Log(x)) }
	for _, c := range []struct {
		name, op string
		attrs    object
		opset    int
		shape    []int
		x, want  []float32
	}{
		{"last axis", "Softmax", object{}, 13, []int{2, 2}, []float32{0, 0, log(3), 0}, []float32{0.5, 0.5, 0.75, 0.25}},
		{"first axis", "Softmax", object{"axis": 0}, 13, []int{2, 2}, []float32{0, 0, log(3), 0}, []float32{0.25, 0.5, 0.75, 0.5}},
		{"middle axis", "Softmax", object{"axis": -2}, 13, []int{1, 2, 2}, []float32{0, 0, log(3), 0}, []float32{0.25, 0.5, 0.75, 0.5}},
		{"all axes from one on", "Softmax", object{}, 11, []int{1, 2, 2}, []float32{0, 0, log(2), 0}, []float32{0.2, 0.2, 0.4, 0.2}},
		{"a log", "LogSoftmax", object{}, 13, []int{2}, []float32{1e4, 1e4}, []float32{log(0.5), log(0.5)}},
		{"a weight that vanishes", "LogSoftmax", object{}, 13, []int{2}, []float32{0, -500}, []float32{0, -500}},
	} {
		o := read(t, object{
			"case": c.name, "opset": object{"": c.opset}, "node": node(c.op, c.attrs, []string{"y"}, "x"),
			"inputs": []object{f("x", c.shape, c.x...)}, "outputs": []object{f("y", c.shape, c.want...)},
		})[0]
		if r, err := o.Run(naive.New()); o.Lacks != "" || err != nil || !(r.Ratio <= 1) {
			t.Errorf("%s: %q %+v %v", c.name, o.Lacks, r, err)
		}
	}
}

// TestReadONNXRotary checks that a quarter turn rotates (1, 2) to (-2, 1), and that a turn of 0
// changes nothing.
func TestReadONNXRotary(t *testing.T) {
	f := func(name string, shape []int, x ...float32) object { return tensor(name, "f32", shape, x) }
	ids := tensor("P", "i64", []int{1, 2}, []int64{1, 0})
	for _, c := range []struct {
		name     string
		attrs    object
		shape    []int
		table    []int
		ids      bool
		x, want  []float32
		cos, sin []float32
	}{
		{
			"two rows",
			object{},
			[]int{1, 1, 2, 2},
			[]int{1, 2, 1},
			false,
			[]float32{1, 2, 1, 2},
			[]float32{-2, 1, 1, 2},
			[]float32{0, 1},
			[]float32{1, 0},
		},
		{
			"positions",
			object{},
			[]int{1, 1, 2, 2},
			[]int{2, 1},
			true,
			[]float32{1, 2, 1, 2},
			[]float32{-2, 1, 1, 2},
			[]float32{1, 0},
			[]float32{0, 1},
		},
		{
			"heads in one row, a half of them turned",
			object{"num_heads": 2, "rotary_embedding_dim": 2, "interleaved": 1},
			[]int{1, 1, 8},
			[]int{1, 1, 1},
			false,
			[]float32{1, 2, 3, 4, 5, 6, 7, 8},
			[]float32{-2, 1, 3, 4, -6, 5, 7, 8},
			[]float32{0},
			[]float32{1},
		},
		{
			"halves",
			object{},
			[]int{1, 1, 1, 4},
			[]int{1, 1, 2},
			false,
			[]float32{1, 2, 3, 4},
			[]float32{-3, -4, 1, 2},
			[]float32{0, 0},
			[]float32{1, 1},
		},
		{
			"neighbours",
			object{"interleaved": 1},
			[]int{1, 1, 1, 4},
			[]int{1, 1, 2},
			false,
			[]float32{1, 2, 3, 4},
			[]float32{-2, 1, -4, 3},
			[]float32{0, 0},
			[]float32{1, 1},
		},
	} {
		names, in := []string{"X", "C", "S"}, []object{f("X", c.shape, c.x...), f("C", c.table, c.cos...), f("S", c.table, c.sin...)}
		if c.ids {
			names, in = append(names, "P"), append(in, ids)
		}
		o := read(t, object{"case": c.name, "node": node("RotaryEmbedding", c.attrs, []string{"Y"}, names...), "inputs": in, "outputs": []object{f("Y", c.shape, c.want...)}})[0]
		if r, err := o.Run(naive.New()); o.Lacks != "" || err != nil || !(r.Ratio <= 1) {
			t.Errorf("%s: %q %+v %v", c.name, o.Lacks, r, err)
		}
	}
}

// TestReadONNXState checks that a state is read, updated by the kernel, and compared.
func TestReadONNXState(t *testing.T) {
	f := func(name string, shape []int, x ...float32) object { return tensor(name, "f32", shape, x) }
	test := func(state float32) object {
		return object{
			"case": "one number: the state 7 takes in 3*5, and the query is 2",
			"node": node("LinearAttention", object{"update_rule": "linear", "q_num_heads": 1, "kv_num_heads": 1}, []string{"O", "S"}, "Q", "K", "V", "S0"),
			"inputs": []object{
				f("Q", []int{1, 1, 1}, 2), f("K", []int{1, 1, 1}, 3), f("V", []int{1, 1, 1}, 5), f("S0", []int{1, 1, 1, 1}, 7),
			},
			"outputs": []object{f("O", []int{1, 1, 1}, 44), f("S", []int{1, 1, 1, 1}, state)},
		}
	}
	k, _ := mutants.Recurrence()
	o := read(t, test(22), test(21))
	if r, err := o[0].Run(k); err != nil || r.Ratio != 0 || len(r.Skipped) > 0 {
		t.Errorf("%q %+v %v", o[0].Lacks, r, err)
	}
	if r, err := o[1].Run(k); err != nil || r.Ratio <= 1 || !strings.HasPrefix(r.Where, "S[") {
		t.Errorf("a wrong state: %+v %v", r, err)
	}
	if _, err := o[0].Run(naive.New()); !errors.Is(err, attn.ErrUnsupported) {
		t.Errorf("on a softmax kernel: %v", err)
	}
}

// weightless is a kernel that refuses to compute weights and scores.
type weightless struct{ attn.Kernel }

func (k weightless) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	if err := p.Require("weightless", attn.AllSoftmax&^(attn.NeedWeights|attn.NeedScores)); err != nil {
		return nil, err
	}
	return k.Kernel.Plan(p, team)
}

// TestReadONNXLacks checks that a case that no problem can express is unsupported, and that the
// error names the missing feature.
func TestReadONNXLacks(t *testing.T) {
	f32 := func(name string) object { return tensor(name, "f32", []int{1, 1, 1, 1}, []float32{1}) }
	in, out := []object{f32("Q"), f32("K"), f32("V")}, []object{f32("Y"), f32("S")}
	pair := func(name string) object { return tensor(name, "f32", []int{2, 1, 1}, []float32{1, 2}) }
	for lack, test := range map[string]object{
		"softmax_precision 16":     {"node": node("Attention", object{"softmax_precision": 16}, []string{"Y"}, "Q", "K", "V"), "inputs": in, "outputs": out},
		"attribute novelty":        {"node": node("Attention", object{"novelty": 1}, []string{"Y"}, "Q", "K", "V"), "inputs": in, "outputs": out},
		"update rule raven":        {"node": node("LinearAttention", object{"update_rule": "raven"}, []string{"Y"}, "Q", "K", "V"), "inputs": in, "outputs": out},
		"operator Softplus":        {"node": node("Softplus", object{}, []string{"Y"}, "Q"), "inputs": in, "outputs": out},
		"stash_type 16":            {"node": node("RMSNormalization", object{"stash_type": 16}, []string{"Y"}, "Q", "K"), "inputs": in, "outputs": out},
		"a scale of shape [2 1 1]": {"node": node("RMSNormalization", object{}, []string{"Y"}, "X", "W"), "inputs": []object{pair("X"), pair("W")}, "outputs": []object{pair("Y")}},
	} {
		test["case"] = lack
		o := read(t, test)[0]
		if !strings.Contains(o.Lacks, lack) || o.Name != lack || o.Args != nil {
			t.Errorf("lacks %q, want %q", o.Lacks, lack)
		}
		if _, err := o.Run(naive.New()); err == nil || !strings.Contains(err.Error(), "unsupported: needs "+lack) {
			t.Errorf("Run: %v", err)
		}
	}
}

func TestReadONNXErrors(t *testing.T) {
	dir := t.TempDir()
	lengths := func(dtype, b64 string) string { // a case that is right except for its key lengths
		shape := map[string]string{"i64": "[1]", "bool": "[8]"}[dtype]
		one := func(name string) string {
			return `{"name":"` + name + `","dtype":"f32","shape":[1,1,1,1],"b64":"AAAAAA=="}`
		}
		return `[{"case":"x","node":{"op":"Attention","inputs":["Q","K","V","","","","N"],"outputs":["Y"]},"inputs":[` +
			one("Q") + "," + one("K") + "," + one("V") + `,{"name":"N","dtype":"` + dtype + `","shape":` + shape + `,"b64":"` + b64 +
			`"}],"outputs":[` + one("Y") + `]}]`
	}
	for name, text := range map[string]string{
		"not json":      `hello`,
		"not a list":    `{"case": "x"}`,
		"short data":    `[{"case":"x","node":{"op":"Attention"},"inputs":[{"name":"Q","dtype":"f32","shape":[2],"b64":"AAAA"}]}]`,
		"unknown dtype": `[{"case":"x","node":{"op":"Attention"},"inputs":[{"name":"Q","dtype":"q3","shape":[0]}]}]`,
		"no operands":   `[{"case":"x","node":{"op":"Attention","inputs":["Q","K","V"]}}]`,
		"wide length":   lengths("i64", "AAAAAAEAAAA="),
		"short length":  lengths("bool", "AQEBAQEBAQE="),
		"negative dim":  `[{"case":"x","node":{"op":"Attention"},"inputs":[{"name":"Q","dtype":"f32","shape":[-1,-4],"b64":"AAAAAAAAAAAAAAAAAAAAAA=="}]}]`,
	} {
		file := filepath.Join(dir, "x.json")
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := cases.ReadONNX(dir); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", name, err)
		}
	}
	right := filepath.Join(t.TempDir(), "right.json")
	if err := os.WriteFile(right, []byte(lengths("i64", "AQAAAAAAAAA=")), 0o666); err != nil {
		t.Fatal(err)
	}
	if o, err := cases.ReadONNX(right); err != nil || o[0].Args.KLen[0] != 1 {
		t.Errorf("key lengths that are right: %v", err)
	}
	if _, err := cases.ReadONNX(t.TempDir()); err == nil {
		t.Error("an empty folder was read")
	}
	if _, err := cases.ReadONNX(filepath.Join(dir, "absent.json")); err == nil {
		t.Error("an absent file was read")
	}
}

// TestONNXAgainstOracle checks that the oracle and ONNX agree on every case that attnlab can
// compute, each within the other's tolerance.
func TestONNXAgainstOracle(t *testing.T) {
	const folder = "../../../shared/conformance"
	if _, err := os.Stat(folder); err != nil {
		t.Skipf("the ONNX cases are not here (%v): nothing was compared", err)
	}
	all, err := cases.ReadONNX(folder)
	if err != nil {
		t.Fatal(err)
	}
	done, worst, far, lacks := 0, 0.0, 0.0, map[string]int{}
	for _, o := range all {
		if o.Lacks != "" {
			lacks[o.Lacks]++
			continue
		}
		if o.Norm != nil { // TestONNXNorms
			continue
		}
		done++
		worst = max(worst, judged(t, &o))
		k := naive.New()
		if o.Problem.Op == attn.OpLinear {
			k, _ = mutants.Recurrence()
		}
		r, err := o.Run(k)
		if err != nil || !(r.Ratio <= 1) || len(r.Skipped) > 0 {
			t.Errorf("%s: %+v %v", o.Name, r, err)
		}
		far = max(far, r.Ratio)
	}
	t.Logf("%d cases compared, worst %.3f of our tolerance, %.3f of theirs; lacking: %v", done, worst, far, lacks)
	if done < 30 {
		t.Errorf("only %d cases could be read", done)
	}
}

// judged returns the oracle's verdict on the outputs that a case expects, if they are all outputs
// of a call.
func judged(t *testing.T, o *cases.Outside) (worst float64) {
	switch {
	case strings.HasPrefix(o.Name, "test_logsoftmax"): // its weights are not given
		return 0
	case o.Problem.Out == attn.F16 && o.Problem.Want != 0: // its weights were rounded to 16 bits
		return 0
	}
	o.Expect()
	or, err := oracle.New(o.Problem, o.Args)
	if err != nil {
		t.Errorf("%s: %v", o.Name, err)
		return 0
	}
	v := or.Judge(oracle.All(&o.Problem, o.Args))
	if !(v.Worst <= 1) {
		t.Errorf("%s: the oracle finds ONNX off by %.3g of its tolerance: %s", o.Name, v.Worst, v.Where)
	}
	return v.Worst
}

// TestONNXRotate checks that Rotate alone also computes ONNX's cases of RotaryEmbedding.
func TestONNXRotate(t *testing.T) {
	const file = "../../../shared/conformance/onnx_rope.json"
	if _, err := os.Stat(file); err != nil {
		t.Skipf("the ONNX cases are not here (%v): nothing was compared", err)
	}
	all, err := cases.ReadONNX(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		o.Expect()
		q, heads := o.Args.Q, o.Problem.HeadsQ/o.Problem.HeadsKV
		q.H = heads // every element has heads of its own with the same Q
		positions := make([]int32, 0, q.B*q.S)
		for range q.B {
			for s := range q.S {
				positions = append(positions, o.Args.QPos[0]+int32(s))
			}
		}
		turned := attn.New(attn.BHSD, q.B, q.S, q.H, q.D)
		if err := attn.Rotate(o.Problem.Score.Rope, turned, q, o.Args.Terms.Cos, o.Args.Terms.Sin, positions); err != nil {
			t.Fatalf("%s: %v", o.Name, err)
		}
		cases.Rows(&turned, func(b, s, h int, row []float32) {
			for c, x := range row {
				if want := o.Args.Stats.LSE.Row(b, s, c*heads+h)[0]; !(math.Abs(float64(x-want)) <= 1e-7+1e-3*math.Abs(float64(want))) {
					t.Fatalf("%s: element %d of head %d, row %d, batch %d: %v, want %v", o.Name, c, h, s, b, x, want)
				}
			}
		})
	}
}

// TestReadONNXAnything checks that any node is read as a case, named as unsupported, or refused as
// wrong, and that a kernel can run every case that is read.
func TestReadONNXAnything(t *testing.T) { rapid.Check(t, anyNode) }

func FuzzReadONNX(f *testing.F) { f.Fuzz(rapid.MakeFuzz(anyNode)) }

// An operator is the attributes of an ONNX operator, and the possible types and shapes of its
// inputs and outputs, in their order.
type operator struct {
	name    string
	in, out []string
	shapes  []string // of inputs, then of outputs
	attrs   []string
}

var operators = []operator{
	{
		"Attention", strings.Fields("f32 f32 f32 bool f32 f32 i64"),
		strings.Fields("f32 f32 f32 f32"),
		strings.Fields("1222 1222 1222 22 1212 1212 1 1222 1232 1232 1223"),
		strings.Fields("is_causal scale softcap qk_matmul_output_mode softmax_precision left_window_size right_window_size"),
	},
	{
		"LinearAttention", strings.Fields("f32 f32 f32 f32 f32 f32"),
		strings.Fields("f32 f32"),
		strings.Fields("122 122 122 1222 122 122 122 1222"),
		strings.Fields("q_num_heads kv_num_heads scale"),
	},
	{
		"RotaryEmbedding", strings.Fields("f32 f32 f32 i64"),
		strings.Fields("f32"),
		strings.Fields("1222 21 21 12 1222"),
		strings.Fields("interleaved num_heads rotary_embedding_dim"),
	},
	{"Softmax", strings.Fields("f32"), strings.Fields("f32"), strings.Fields("123 123"), strings.Fields("axis")},
	{"LogSoftmax", strings.Fields("f32"), strings.Fields("f32"), strings.Fields("123 123"), strings.Fields("axis")},
	{
		"LayerNormalization", strings.Fields("f32 f32 f32"), strings.Fields("f32 f32 f32"), strings.Fields("123 3 3 123 121 121"), strings.Fields("axis epsilon stash_type"),
	},
	{"RMSNormalization", strings.Fields("f32 f32"), strings.Fields("f32"), strings.Fields("123 3 123"), strings.Fields("axis epsilon")},
}

// anyNode draws a valid node with a few random changes.
func anyNode(t *rapid.T) {
	n := func(name string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(t, name) }
	seldom := func(name string) bool { return n(name, 0, 15) == 0 }
	size := map[string]int{"f32": 4, "f16": 2, "bf16": 2, "f64": 8, "i64": 8, "bool": 1}
	op := rapid.SampledFrom(operators).Draw(t, "op")
	operands := func(kind string, types, shapes []string, needed int) (names []string, tensors []object) {
		for i, typ := range types {
			name := fmt.Sprint(kind, i)
			names = append(names, name)
			if seldom(name+" is left out") || i >= needed && rapid.Bool().Draw(t, name+" is none") {
				names[i] = ""
				continue
			}
			var shape []int
			for _, d := range shapes[i] {
				shape = append(shape, int(d-'0'))
			}
			if seldom(name + " has another shape") {
				shape = rapid.SliceOfN(rapid.IntRange(0, 3), 0, 5).Draw(t, name+" shape")
			}
			if seldom(name + " has another type") {
				typ = rapid.SampledFrom([]string{"f32", "f16", "bf16", "f64", "i64", "bool"}).Draw(t, name+" type")
			}
			bytes := size[typ]
			for _, d := range shape {
				bytes *= d
			}
			raw := make([]byte, bytes)
			if typ != "i64" || seldom(name+" is large") {
				raw = rapid.SliceOfN(rapid.Byte(), bytes, bytes).Draw(t, name)
			}
			tensors = append(tensors, tensor(name, typ, shape, raw))
		}
		return names, tensors
	}
	inputs, in := operands("input", op.in, op.shapes, 3)
	outputs, out := operands("output", op.out, op.shapes[len(op.in):], 1)
	attrs := object{}
	for _, a := range op.attrs {
		if strings.HasSuffix(a, "num_heads") {
			attrs[a] = 2
		}
		if rapid.Bool().Draw(t, a+" is given") {
			attrs[a] = n(a, -2, 3)
		}
	}
	if op.name == "LinearAttention" {
		attrs["update_rule"] = rapid.SampledFrom([]string{"linear", "gated", "delta", "gated_delta", "other"}).Draw(t, "rule")
	}
	text, err := json.Marshal([]object{{"case": "x", "opset": object{"": n("opset", 11, 13)}, "node": node(op.name, attrs, outputs, inputs...), "inputs": in, "outputs": out}})
	if err != nil {
		t.Fatal(err)
	}
	folder, err := os.MkdirTemp("", "onnx")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "x.json")
	if err := os.WriteFile(file, text, 0o666); err != nil {
		t.Fatal(err)
	}
	all, err := cases.ReadONNX(file)
	if err != nil || all[0].Lacks != "" {
		return
	}
	if n := all[0].Norm; n != nil {
		if len(n.X) != n.Rows*n.Dim || len(n.Gain) != n.Dim || n.Bias != nil && len(n.Bias) != n.Dim {
			t.Fatalf("%d rows of %d: %d numbers, %d scales, %d shifts", n.Rows, n.Dim, len(n.X), len(n.Gain), len(n.Bias))
		}
		n.Judge(make([]float32, len(n.X)), make([]float64, n.Rows), make([]float64, n.Rows))
		return
	}
	k := naive.New()
	if all[0].Problem.Op == attn.OpLinear {
		k, _ = mutants.Recurrence()
	}
	if _, err := all[0].Run(k); err != nil && strings.Contains(err.Error(), "panic") {
		t.Fatalf("%v", err)
	}
}

// TestReadONNXRuleInputs checks that a decay or beta that does not fit the update rule is an error
// that says what to do.
func TestReadONNXRuleInputs(t *testing.T) {
	for _, test := range []struct{ rule, inputs, want string }{
		{"gated", `"Q","K","V"`, "got no decay; give one"},
		{"delta", `"Q","K","V"`, "got no beta; give one"},
		{"linear", `"Q","K","V","","Q"`, "got a decay, want none; leave it out"},
		{"gated", `"Q","K","V","","Q","Q"`, "got a beta, want none; leave it out"},
	} {
		file := filepath.Join(t.TempDir(), "x.json")
		one := `{"name":"Q","dtype":"f32","shape":[1,1,1,1],"b64":"AAAAAA=="}`
		text := `[{"case":"x","node":{"op":"LinearAttention","attrs":{"update_rule":"` + test.rule + `"},"inputs":[` + test.inputs +
			`],"outputs":["Y"]},"inputs":[` + one + `],"outputs":[` + strings.Replace(one, "Q", "Y", 1) + `]}]`
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := cases.ReadONNX(file); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s of %s: got error %v, want %q", test.rule, test.inputs, err, test.want)
		}
	}
}
