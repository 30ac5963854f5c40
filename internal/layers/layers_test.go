package layers

import (
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "attnlab"

// TestLayers checks that every non-test file of the module imports only what the table allows. It
// also keeps package testing out of programs: only packages whose name ends in test may import it.
func TestLayers(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	files, internal := 0, 0
	err = filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != root && (strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_") || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() && file != root:
			if _, err := os.Stat(filepath.Join(file, "go.mod")); err == nil {
				return filepath.SkipDir // a module of its own
			}
			return nil
		case d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go"):
			return nil
		}
		rel, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(rel)
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		files++
		if _, ok := find(pkg); !ok {
			t.Errorf("%s: package %s is not in the table: say there what it may import", file, pkg)
			return nil
		}
		for _, spec := range f.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if imp == "testing" && !strings.HasSuffix(path.Base(pkg), "test") {
				t.Errorf("%s imports package testing, which would become part of programs", file)
			}
			if own, ok := strings.CutPrefix(imp, module+"/"); ok {
				internal++
				if err := judge(pkg, buildConstraint(f), own); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 20 || internal < 20 {
		t.Errorf("%d files with %d imports of this module: the walk from %s missed the sources", files, internal, root)
	}
}

// buildConstraint returns the //go:build line of a file.
func buildConstraint(f *ast.File) string {
	for _, g := range f.Comments {
		for _, c := range g.List {
			if c.Pos() < f.Package && constraint.IsGoBuild(c.Text) {
				return c.Text
			}
		}
	}
	return ""
}

// TestJudge checks which imports judge allows.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		pkg, constraint, imp string
		ok                   bool
	}{
		{"attn", "", "kernels", false},
		{"attn/oracle", "", "attn", true},
		{"attn/oracle", "", "attn/cases", false},
		{"attn/attntest/mutants", "", "attn/cases", true},
		{"attn/attntest/mutants", "", "kernels/naive", false},
		{"attn/attntest/mutants", "", "attn/attntest", false},
		{"kernels/asm", "", "attn", false},
		{"attn/attntest/mutants", "", "kernels/scalar", true},
		{"attn/attntest", "", "kernels/scalar", false},
		{"kernels/naive", "", "kernels/asm", false},
		{"kernels/naive", "", "kernels/scalar", true},
		{"kernels/scalar", "", "attn", true},
		{"kernels/scalar", "", "attn/oracle", false},
		{"kernels/scalar", "", "kernels/asm", false},
		{"kernels/operand", "", "kernels/asm", true},
		{"kernels/operand", "", "kernels/scalar", false},
		{"kernels/tile", "", "kernels/operand", true},
		{"kernels/linear", "", "kernels/operand", true},
		{"kernels/linear", "", "kernels/tile", false},
		{"kernels/flash", "", "kernels/tile", true},
		{"kernels/flash", "", "kernels/tiled", false},
		{"kernels/flash", "", "kernels/flash/decode", true},
		{"kernels/flash/decode", "", "kernels/flash/prefill", false},
		{"kernels/flash/prefill", "", "kernels/flash/decode", false},
		{"kernels/flash/decode", "", "kernels/tile", true},
		{"kernels/tiled", "", "kernels/flash/prefill", false},
		{"kernels/linear", "", "kernels/flash", false},
		{"kernels/tile", "", "kernels/flash", false},
		{"kernels", "", "kernels/flash", true},
		{"kernels", "", "harness", false},
		{"harness/stats", "", "attn", false},
		{"harness/run", "", "attn/cases", false},
		{"harness", "", "attn/cases", true},
		{"harness", "", "kernels", false},
		{"harness", "", "harness/verify", true},
		{"harness", "", "harness/ab", false},
		{"harness/verify", "", "harness", false},
		{"harness/ab", "", "harness", true},
		{"harness/study", "", "harness/ab", true},
		{"harness/compare", "", "harness/run", true},
		{"harness/compare", "", "harness/run/runtest", false},
		{"reports", "", "harness/run", true},
		{"reports", "", "harness/history", true},
		{"reports", "", "harness", false},
		{"theory/gibbs", "", "theory/tensor", true},
		{"theory/gibbs", "", "theory/equations", false},
		{"theory/equations", "", "nn", true},
		{"theory/equations", "", "kernels/flash", false},
		{"nn", "", "kernels/asm", true},
		{"nn", "", "kernels/flash", false},
		{"nn", "", "theory/equations", false},
		{"lab/command", "", "kernels", false},
		{"lab/command", "", "kernels/asm", true},
		{"lab/command", "", "kernels/flash", false},
		{"lab/command", "", "lab/layer", false},
		{"lab/command", "", "lab/survey", true},
		{"lab/command", "", "nn", true},
		{"lab/layer", "", "nn", true},
		{"lab/layer", "", "lab/sets", true},
		{"lab/layer", "", "kernels", false},
		{"lab/survey", "", "lab/command", false},
		{"lab/revision", "", "internal/processtest", false},
		{"lab/revision/revisiontest", "", "internal/processtest", true},
		{"cmd/benchrun", "", "kernels", true},
		{"lab/command", "", "attn/attntest", false},
		{"lab/command", "", "attn/attntest/mutants", false},
		{"cmd/benchrun", "", "lab/command", true},
		{"cmd/benchrun", "", "attn/attntest", false},
		{"cmd/benchrun", "", "attn/attntest/mutants", false},
		{"lab/sabotage", "//go:build sabotage", "attn/attntest/mutants", true},
		{"lab/sabotage", "//go:build !sabotage", "attn/attntest/mutants", false},
		{"lab/sabotage", "", "attn/attntest/mutants", false},
		{"lab/sabotage", "//go:build sabotage", "attn/attntest", false},
		{"lab/command", "//go:build sabotage", "attn/attntest/mutants", false},
		{"cmd/benchrun", "//go:build sabotage", "attn/attntest/mutants", false},
		{"somewhere/new", "", "attn", false},
	} {
		if err := judge(c.pkg, c.constraint, c.imp); (err == nil) != c.ok {
			t.Errorf("%s %s imports %s: %v, want allowed %v", c.pkg, c.constraint, c.imp, err, c.ok)
		}
	}
}
