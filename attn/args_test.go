package attn_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
)

// call lays out operands for a problem.
func call(p attn.Problem) *attn.Args {
	a, err := cases.NewArgs(p, "bhsd", nil)
	if err != nil {
		panic(err)
	}
	return a
}

func TestCheckNamesTheOperand(t *testing.T) {
	for _, op := range attn.Ops() {
		for _, bad := range cases.BadCalls(op) {
			a := call(bad.Problem)
			if err := bad.Problem.Check(a); err != nil {
				t.Errorf("%v %s: before it is broken: %v", op, bad.Name, err)
			}
			bad.Break(a)
			if err := bad.Problem.Check(a); err == nil || !strings.Contains(err.Error(), bad.Operand) {
				t.Errorf("%v %s: error %v, want one that names %s", op, bad.Name, err, bad.Operand)
			}
		}
	}
}

// TestCheckTakesWhatIsRight checks that every case passes Check in every layout that holds it, and
// that Check allocates nothing.
func TestCheckTakesWhatIsRight(t *testing.T) {
	for _, c := range cases.Core() {
		a, _, err := c.Args()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Problem.Check(a); err != nil {
			t.Errorf("%v: %v", &c, err)
		}
		if n := testing.AllocsPerRun(1, func() { _ = c.Problem.Check(a) }); n != 0 {
			t.Errorf("%v: %v allocations", &c, n)
		}
	}
	p := attn.Problem{Batch: 2, SeqQ: 5, SeqKV: 5, HeadsQ: 4, HeadsKV: 2, Dim: 3, DimV: 7, Want: attn.WantLSE | attn.WantWeights}
	for _, layout := range cases.Layouts() {
		a, err := cases.NewArgs(p, layout, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Check(a); err != nil {
			t.Errorf("%s: %v", layout, err)
		}
	}
}

func TestMustPanicsWithTheKernelsName(t *testing.T) {
	defer func() {
		if err, ok := recover().(error); !ok || !strings.HasPrefix(err.Error(), "flash/go: Q: ") {
			t.Errorf("%v", err)
		}
	}()
	p := attn.Problem{Batch: 1, SeqQ: 1, SeqKV: 1, HeadsQ: 1, HeadsKV: 1, Dim: 1, DimV: 1}
	p.Must("flash/go", new(attn.Args))
}

func TestPositions(t *testing.T) {
	bottom, top := attn.Problem{Batch: 2, SeqQ: 4, SeqKV: 9, Mask: attn.Causal(), Lengths: true}, attn.Problem{}
	top = bottom
	top.Mask = attn.CausalTopLeft()
	a := &attn.Args{Q: attn.Tensor{S: 3}, K: attn.Tensor{S: 8}, KLen: []int32{8, 2}}
	for b, want := range []int{5, -1} {
		if got := a.Pos(&bottom, b); got != want {
			t.Errorf("bottom-right, batch %d: query 0 stands at %d, want %d", b, got, want)
		}
		if got := a.Pos(&top, b); got != 0 {
			t.Errorf("top-left, batch %d: query 0 stands at %d, want 0", b, got)
		}
	}
	if lo, hi := a.Visible(&bottom, 1, 0); lo != hi {
		t.Errorf("a query before the first key sees [%d,%d)", lo, hi)
	}
	a.QPos = []int32{4, 7}
	if lo, hi := a.Visible(&bottom, 0, 1); lo != 0 || hi != 6 {
		t.Errorf("a query at 5 sees [%d,%d), want [0,6)", lo, hi)
	}
}

func TestValidate(t *testing.T) {
	good := attn.Problem{Batch: 2, SeqQ: 3, SeqKV: 4, HeadsQ: 4, HeadsKV: 2, Dim: 8, DimV: 8}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	if err := (&attn.Problem{}).Validate(); err != nil {
		t.Errorf("the zero problem: %v", err)
	}
	for _, c := range []struct {
		says string
		edit func(p *attn.Problem)
	}{
		{"batch is -1", func(p *attn.Problem) { p.Batch = -1 }},
		{"seq_q is -1", func(p *attn.Problem) { p.SeqQ = -1 }},
		{"seq_kv is -1", func(p *attn.Problem) { p.SeqKV = -1 }},
		{"dim is -1", func(p *attn.Problem) { p.Dim = -1 }},
		{"dim_v is -1", func(p *attn.Problem) { p.DimV = -1 }},
		{"page is -1", func(p *attn.Problem) { p.Page = -1 }},
		{"heads", func(p *attn.Problem) { p.HeadsKV = 3 }},
		{"heads", func(p *attn.Problem) { p.HeadsKV = 0 }},
		{"window", func(p *attn.Problem) { p.Mask = attn.Window(-2, 0) }},
		{"window", func(p *attn.Problem) { p.Mask = attn.Window(math.MaxInt, 0) }},
		{"window", func(p *attn.Problem) { p.Mask = attn.Window(0, math.MaxInt32+1) }},
		{"window", func(p *attn.Problem) { p.Mask.Right = 1 }},
		{"alignment", func(p *attn.Problem) { p.Mask.Align = 2 }},
		{"scale", func(p *attn.Problem) { p.Score.Scale = math.NaN() }},
		{"scale", func(p *attn.Problem) { p.Score.Scale = 1e39 }},
		{"scale", func(p *attn.Problem) { p.Score.Scale = 1e-50 }},
		{"temperature", func(p *attn.Problem) { p.Score.Temp = -2 }},
		{"temperature", func(p *attn.Problem) { p.Score.Temp = math.NaN() }},
		{"temperature", func(p *attn.Problem) { p.Score.Temp = 1e-31 }},
		{"softcap", func(p *attn.Problem) { p.Score.Softcap = -1 }},
		{"softcap", func(p *attn.Problem) { p.Score.Softcap = 1e-46 }},
		{"softcap", func(p *attn.Problem) { p.Score.Softcap = 1e39 }},
		{"softcap", func(p *attn.Problem) { p.Score.Softcap = math.NaN() }},
		{"more than any machine", func(p *attn.Problem) { p.Dim = 1 << 55 }},
		{"more than any machine", func(p *attn.Problem) { p.SeqQ, p.SeqKV = math.MaxInt32, math.MaxInt32 }},
		{"pages of 12 rows", func(p *attn.Problem) { p.Page = 12 }},
		{"pages of 4 rows", func(p *attn.Problem) { p.Page = 4 }},
		{"int8 is a type for K and V", func(p *attn.Problem) { p.Q = attn.I8 }},
		{"sinks at temperature Frozen", func(p *attn.Problem) { p.Score.Temp, p.Score.Terms = attn.Frozen, attn.TermSinks }},
		{"dim_q 3 and dim 8", func(p *attn.Problem) { p.DimQ = 3 }},
		{"with blocks of 0", func(p *attn.Problem) { p.Mask.Bitmap = attn.BlockBitmap }},
		{"with blocks of 4", func(p *attn.Problem) { p.Mask.Block = 4 }},
		{"LSE", func(p *attn.Problem) { p.Score.Temp, p.Want = attn.Frozen, attn.WantLSE }},
		{"unknown op", func(p *attn.Problem) { p.Op = attn.Op(len(attn.Ops())) }},
		{"unknown", func(p *attn.Problem) { p.KV = 4 }},
		{"unknown", func(p *attn.Problem) { p.Score.Terms = 1 << 6 }},
		{"eps", func(p *attn.Problem) { p.Op, p.Linear.Eps = attn.OpLinear, -1 }},
		{"op is softmax", func(p *attn.Problem) { p.Linear.Unnormalised = true }},
		{"op linear has no temperature", func(p *attn.Problem) { p.Op, p.Score.Temp = attn.OpLinear, 2 }},
		{"op linear has no bias, LSE", func(p *attn.Problem) { p.Op, p.Score.Terms, p.Want = attn.OpLinear, attn.TermBias, attn.WantLSE }},
		{"op is linear, which has no metric", func(p *attn.Problem) { p.Op, p.DimQ = attn.OpLinear, p.Dim }},
	} {
		p := good
		c.edit(&p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("error %v, want one that says %q", err, c.says)
		} else if errors.Is(err, attn.ErrUnsupported) {
			t.Errorf("%v: malformed is not unsupported", err)
		}
	}
}

func TestNames(t *testing.T) {
	window := attn.Window(3, attn.Unbounded)
	window.Align = attn.TopLeft
	for _, c := range []struct{ got, want string }{
		{attn.Full().String(), "full"},
		{attn.Causal().String(), "causal"},
		{attn.CausalTopLeft().String(), "causal-topleft"},
		{attn.Window(2, 0).String(), "window:2:0"},
		{window.String(), "window:3:inf:topleft"},
		{attn.Causal().With(attn.BoolBitmap).String(), "causal+bool"},
		{attn.OpLinear.String(), "linear"},
		{attn.BF16.String(), "bf16"},
		{attn.DType(9).String(), "dtype(9)"},
		{(attn.NeedBias | attn.NeedLSE).String(), "bias, LSE"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
	for _, f := range []attn.Feature{attn.EluPlusOne, attn.ReluPlusOne, attn.Identity} {
		if got, err := attn.FeatureByName(f.String()); got != f || err != nil {
			t.Errorf("%v: %v, %v", f, got, err)
		}
	}
	if _, err := attn.FeatureByName("gelu"); err == nil || !strings.Contains(err.Error(), "elu+1") {
		t.Errorf("unknown feature: %v, want an error that lists the known ones", err)
	}
}

// TestRelativeRows checks the rows of both kinds of table. A table of all distances has its rows in
// the order of keys as the last query sees them. A clipped table has distance 0 in the middle.
func TestRelativeRows(t *testing.T) {
	p := attn.Problem{Batch: 1, SeqQ: 3, SeqKV: 5}
	a := &attn.Args{Q: attn.Tensor{S: 3}, K: attn.Tensor{S: 5}}
	for i := range 3 {
		for j := range 5 {
			if got, want := a.Relative(&p, 0, i, j), 2-i+j; got != want {
				t.Errorf("query %d, key %d: row %d, want %d", i, j, got, want)
			}
		}
	}
	a.Terms.RelativeClip = 2 // the queries are at positions 2, 3 and 4
	for i, want := range [][]int{{0, 1, 2, 3, 4}, {0, 0, 1, 2, 3}, {0, 0, 0, 1, 2}} {
		for j := range 5 {
			if got := a.Relative(&p, 0, i, j); got != want[j] {
				t.Errorf("clipped, query %d, key %d: row %d, want %d", i, j, got, want[j])
			}
		}
	}
}

// TestRowsOfSequencesAndPages checks where QRow and KRow find rows.
func TestRowsOfSequencesAndPages(t *testing.T) {
	p := attn.Problem{Batch: 2, SeqQ: 4, SeqKV: 20, Ragged: true}
	a := &attn.Args{QStart: []int32{1, 3, 7}, KStart: []int32{0, 5, 9}}
	if b, row := a.QRow(&p, 1, 2); b != 0 || row != 5 {
		t.Errorf("query 2 of the second sequence is row %d of %d, want 5", row, b)
	}
	if b, row := a.KRow(&p, 1, 2); b != 0 || row != 7 {
		t.Errorf("key 2 of the second sequence is row %d of %d, want 7", row, b)
	}
	if q, k, pos := a.Queries(&p, 1), a.Keys(&p, 1), a.Pos(&p, 0); q != 4 || k != 4 || pos != 3 {
		t.Errorf("%d queries, %d keys, the first of the other at %d; want 4, 4, 3", q, k, pos)
	}
	p.Ragged, p.Page = false, 8
	// the second entry's cache is a ring of one page
	a = &attn.Args{Pages: []int32{7, 0, 2, 5, 5, 5}}
	for _, c := range []struct{ b, j, page, row int }{{0, 0, 7, 0}, {0, 7, 7, 7}, {0, 8, 0, 0}, {0, 19, 2, 3}, {1, 3, 5, 3}, {1, 19, 5, 3}} {
		if page, row := a.KRow(&p, c.b, c.j); page != c.page || row != c.row {
			t.Errorf("key %d of entry %d is row %d of page %d, want row %d of page %d", c.j, c.b, row, page, c.row, c.page)
		}
	}
}
