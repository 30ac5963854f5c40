package equations

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/kernels"
	"attnlab/kernels/asm"
	"attnlab/nn"
	"attnlab/theory/bridge"
)

var update = flag.Bool("update", false, "rewrite docs/equations.md")

// TestIDs checks that the table has exactly the rows listed in testdata/ids.txt.
func TestIDs(t *testing.T) {
	data, err := os.ReadFile("testdata/ids.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(string(data))
	var got []string
	for _, r := range Table() {
		if slices.Contains(got, r.ID) {
			t.Errorf("%s is in the table twice", r.ID)
		}
		got = append(got, r.ID)
		if !slices.Contains(want, r.ID) {
			t.Errorf("%s is not in testdata/ids.txt", r.ID)
		}
	}
	for _, id := range want {
		if !slices.Contains(got, id) {
			t.Errorf("%s is not in the table", id)
		}
	}
}

// env has the matrix products that rows of layers need, on an instruction set that every machine
// has.
var env = Env{Products: func() *nn.Multiplier { return nn.NewMultiplier(asm.Levels()[0].Ops, nil) }}

// TestRowsSayWhatTheyAre checks that each row either computes or gives a reason: an alias names
// rows of the table, and prose names documented symbols.
func TestRowsSayWhatTheyAre(t *testing.T) {
	rows := Table()
	for _, r := range rows {
		if r.Statement == "" || r.Source() == "" {
			t.Errorf("%s: no statement, or no source", r.ID)
		}
		if r.Computed() != (r.Is == "") {
			t.Errorf("%s: got verdict %q with computed %v; want a verdict just for rows that compute nothing", r.ID, r.Is, r.Computed())
		}
		switch r.Is {
		case Alias:
			for _, id := range r.Of {
				if some, _ := Select(rows, []string{id}, ""); len(some) != 1 || some[0].Is == Alias {
					t.Errorf("%s is an alias of %s, which is not a row or is an alias itself", r.ID, id)
				}
			}
		case Prose:
			for _, symbol := range r.Of {
				if !documented(t, symbol) {
					t.Errorf("%s: %s has no documentation", r.ID, symbol)
				}
			}
		}
		if r.Is == Pending {
			t.Errorf("%s: waits for %v; write its check", r.ID, r.Of)
		}
		if !r.Computed() && len(r.Of) == 0 {
			t.Errorf("%s: computes nothing and names no other place in Of", r.ID)
		}
	}
}

// documented reports whether a package ("package attn/oracle") or an exported symbol
// ("attn.Problem", "attn.Problem.Count") has documentation.
func documented(t *testing.T, symbol string) bool {
	dir, isPackage := strings.CutPrefix(symbol, "package ")
	name := ""
	if !isPackage {
		slash := strings.LastIndex(symbol, "/") + 1
		pkg, rest, _ := strings.Cut(symbol[slash:], ".")
		dir, name = symbol[:slash]+pkg, rest
	}
	files, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Errorf("%s: no package %s", symbol, dir)
		return false
	}
	fset := token.NewFileSet()
	var parsed []*ast.File
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, f, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, file)
	}
	p, err := doc.NewFromFiles(fset, parsed, "attnlab/"+dir)
	if err != nil {
		t.Fatal(err)
	}
	if isPackage {
		return p.Doc != ""
	}
	text := map[string]string{}
	funcs := func(prefix string, list []*doc.Func) {
		for _, f := range list {
			text[prefix+f.Name] = f.Doc
		}
	}
	values := func(list []*doc.Value) {
		for _, v := range list {
			for _, n := range v.Names {
				text[n] = v.Doc
			}
		}
	}
	funcs("", p.Funcs)
	values(p.Consts)
	values(p.Vars)
	for _, ty := range p.Types {
		text[ty.Name] = ty.Doc
		funcs("", ty.Funcs)
		funcs(ty.Name+".", ty.Methods)
		values(ty.Consts)
		values(ty.Vars)
	}
	return text[name] != ""
}

// some returns the rows to test: all of them, or with -short one in eight.
func some() []Row {
	rows := Table()
	if !testing.Short() {
		return rows
	}
	var few []Row
	for i := 1; i < len(rows); i += 8 {
		few = append(few, rows[i])
	}
	return few
}

// TestPage checks that every statement holds, in its mathematics and on every kernel of this
// machine that claims it, and that docs/equations.md has the same table.
func TestPage(t *testing.T) {
	var all []Result
	with := env
	with.Kernels = kernels.All()
	for _, row := range some() {
		t.Run(row.ID, func(t *testing.T) {
			r, err := row.Run(t.Context(), with)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range r.Outcomes {
				if o.Verdict == Fail {
					t.Errorf("%s: %s: %v, at most %v", o.By, o.What, o.Residual, o.Bound)
				}
			}
			if len(r.Outcomes) > 0 && r.Verdict != Pass && !t.Failed() {
				t.Error(r.Verdict)
			}
			all = append(all, r)
		})
	}
	if len(all) < len(Table()) {
		return // some rows were not run
	}
	var page bytes.Buffer
	Page(&page, all)
	const file = "../../docs/equations.md"
	if *update {
		if err := os.WriteFile(file, page.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(page.Bytes(), want) {
		t.Errorf("%s differs from the table: run go test ./theory/equations -run Page -update", file)
	}
}

// TestMutants checks that every check fails with any of its ingredients changed. Checks of kernels
// run on the definition, or on the first kernel that supports them.
func TestMutants(t *testing.T) {
	attentions := []bridge.Attention{{}}
	for _, k := range kernels.All() {
		attentions = append(attentions, bridge.Through(k))
	}
	for _, r := range some() {
		if !r.Computed() {
			continue
		}
		t.Run(r.ID, func(t *testing.T) {
			t.Parallel()
			found := 0
			if r.Check != nil {
				found += mutate(t, r.ID, r.Check)
			}
			if r.Kernel != nil {
				found += mutate(t, r.ID, func(c *Check) {
					for _, a := range attentions {
						if err := c.run(func(c *Check) { r.Kernel(c, a) }); !errors.Is(err, attn.ErrUnsupported) {
							c.Must(err)
							return
						}
					}
				})
			}
			if found == 0 {
				t.Errorf("no ingredient of the check is marked")
			}
		})
	}
}

// mutate runs a check once for each ingredient, with that one changed. It returns the number of
// ingredients.
func mutate(t *testing.T, id string, f func(*Check)) int {
	honest := newCheck(id, env)
	if o := (check{run: f}).outcome(honest); o.Verdict != Pass {
		t.Fatalf("without a mutant: %s: %v, at most %v", o.What, o.Residual, o.Bound)
	}
	for _, point := range honest.points {
		c := newCheck(id, env)
		c.mutant = point
		if o := (check{run: f}).outcome(c); o.Verdict == Pass {
			t.Errorf("the check holds with %q changed", point)
		}
	}
	return len(honest.points)
}

// TestVerdicts checks the verdict of checks that compare nothing, compare NaN, stop, panic, or
// pass.
func TestVerdicts(t *testing.T) {
	nan := func() float64 { var zero float64; return zero / zero }()
	for _, test := range []struct {
		name string
		f    func(*Check)
		want Verdict
		by   string
	}{
		{"nothing", func(*Check) {}, Fail, ""},
		{"NaN", func(c *Check) { c.Near("x", nan, 1, 1e9) }, Fail, ""},
		{"NaN among others", func(c *Check) { c.NearAll("x", []float64{1, nan, 1}, []float64{1, 1, 1}, 1e9) }, Fail, ""},
		{"lengths", func(c *Check) { c.NearAll("x", []float64{1}, []float64{1, 1}, 1) }, Fail, ""},
		{"panic", func(*Check) { panic("lost") }, Fail, ""},
		{"stopped", func(c *Check) { c.True("x", true); c.Must(errors.New("no")) }, Fail, "naive/go"},
		{"unclaimed", func(c *Check) { c.Must(attn.ErrUnsupported) }, Unclaimed, "naive/go"},
		{"unsupported mathematics", func(c *Check) { c.True("x", true); c.Must(attn.ErrUnsupported) }, Fail, ""},
		{"near", func(c *Check) { c.Near("x", 1, 1.5, .5) }, Pass, ""},
		{"far", func(c *Check) { c.Near("x", 1, 1.5, .49) }, Fail, ""},
		{"one of two", func(c *Check) { c.True("x", false); c.True("y", true) }, Fail, ""},
		{"printed", func(c *Check) { c.Printed("x", ".33 -2.5e-3 7", 1./3, -.00254, 7) }, Pass, ""},
		{"printed otherwise", func(c *Check) { c.Printed("x", ".33 .33", 1./3, .34) }, Fail, ""},
		{"refuted", func(c *Check) { c.Refutes("E-00", "x", ".42", .4410) }, Pass, ""},
		{"not refuted", func(c *Check) { c.Refutes("E-00", "x", ".44", .4410) }, Fail, ""},
	} {
		if o := (check{test.by, test.f}).outcome(newCheck(test.name, env)); o.Verdict != test.want {
			t.Errorf("%s: %s (%s: %v of %v), want %s", test.name, o.Verdict, o.What, o.Residual, o.Bound, test.want)
		}
	}
}

// TestRunStops checks that a run stops when its context ends, and returns the context's error.
func TestRunStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	rows := []Row{{ID: "T-1", Check: func(c *Check) { c.True("x", true) }}, {ID: "T-2", Check: func(c *Check) { cancel(); c.True("x", true) }}, {ID: "T-3"}}
	if err := Run(ctx, Env{}, rows, func(Result) { n++ }); !errors.Is(err, context.Canceled) || n != 1 {
		t.Errorf("%v after %d rows, want %v after 1", err, n, context.Canceled)
	}
}
