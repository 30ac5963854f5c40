// Package layers states which package of this module may import which. Its test parses every source
// file, whatever its build tags, and compares its imports with the table.
//
// The table is the architecture. Vocabulary (attn) imports nothing. Kernels import the vocabulary,
// the inner loops and what kernels share, and never each other. The harness judges and times
// kernels that are handed to it, so it cannot favour one, and so does the command line (lab). Only
// main packages import everything.
package layers

import (
	"fmt"
	"path"
	"strings"
)

// A rule lists what a package may import of this module. A pattern ends in /... to mean a package
// and all below it; the most specific pattern that matches a package is its rule.
type rule struct {
	pkg string
	may []string
}

var table = []rule{
	{"attn", nil},
	{"attn/oracle", []string{"attn"}},
	{"attn/cases", []string{"attn"}},
	{"attn/attntest/...", []string{"attn", "attn/oracle", "attn/cases", "attn/attntest/..."}},
	// Mutants are kernels themselves.
	{"attn/attntest/mutants", []string{"attn", "attn/cases", "attn/attntest/...", "kernels/scalar"}},

	{"kernels/asm", nil},
	{"kernels/asm/asmtest", []string{"kernels/asm"}},
	{"kernels/asm/internal/...", []string{"kernels/asm/internal/..."}},
	// Any other kernel, such as linear.
	{"kernels/...", []string{"attn", "kernels/asm", "kernels/scalar", "kernels/operand"}},
	{"kernels/scalar", []string{"attn"}},
	{"kernels/operand", []string{"attn", "kernels/asm"}},
	{"kernels/naive", []string{"attn", "kernels/scalar"}},
	{"kernels/tile", []string{"attn", "kernels/asm", "kernels/scalar", "kernels/operand"}},
	{"kernels/tiled", []string{"attn", "kernels/asm", "kernels/tile", "kernels/scalar", "kernels/operand"}},
	{"kernels/flash", []string{"attn", "kernels/asm", "kernels/tile", "kernels/scalar", "kernels/operand", "kernels/flash/decode", "kernels/flash/prefill"}},
	{"kernels/flash/decode", []string{"attn", "kernels/asm", "kernels/tile", "kernels/scalar", "kernels/operand"}},
	{"kernels/flash/prefill", []string{"attn", "kernels/asm", "kernels/tile", "kernels/scalar", "kernels/operand"}},
	{"kernels/flash/flashtest", []string{"attn", "attn/cases"}},
	{"kernels", []string{"attn", "kernels/..."}},
	{"peers", []string{"attn", "internal/group"}},
	{"peers/peertest", []string{"attn", "attn/cases", "harness/run", "kernels/naive"}},

	{"harness/stats", nil},
	{"harness/run", []string{"attn", "harness/stats"}},
	{"harness/verify", []string{"attn", "attn/oracle", "attn/cases"}},
	{"harness", []string{"attn", "attn/oracle", "attn/cases", "harness/machine", "harness/run", "harness/stats", "harness/verify", "internal/group"}},
	{"harness/ab", []string{"harness", "harness/run", "harness/stats"}},
	{"harness/study", []string{"harness/ab", "harness/run", "harness/stats"}},
	{"harness/...", []string{"attn", "attn/oracle", "attn/cases", "harness/..."}},
	{"harness/harnesstest", []string{"attn", "attn/oracle", "harness", "harness/run", "kernels/naive"}},
	{"harness/gate", []string{"harness/...", "internal/markdown"}},
	{"reports/...", []string{"harness/run", "harness/stats", "harness/history", "internal/canvas", "internal/markdown"}},

	{"theory/equations", []string{"attn", "attn/oracle", "theory/...", "nn/..."}},
	{"theory/figures", []string{"attn", "attn/oracle", "theory/...", "!theory/equations", "internal/canvas"}},
	{"theory/...", []string{"attn", "attn/oracle", "theory/...", "!theory/equations"}},
	{"nn/...", []string{"attn", "attn/oracle", "kernels/asm", "theory/...", "!theory/equations", "nn/..."}},

	{"lab/...", []string{"...", "!attn/attntest/...", "!kernels/...", "kernels/asm", "!lab/command", "!cmd/...", "!examples/..."}},
	{"lab/command", []string{
		"attn", "attn/cases", "harness/...", "kernels/asm", "lab/...", "!lab/layer", "!lab/sabotage", "nn", "peers", "reports", "theory/equations",
		"theory/figures",
	}},
	{"lab/sabotage", []string{"attn"}}, // and mutants: see below
	{"cmd/...", []string{"...", "!attn/attntest/..."}},
	{"examples/...", []string{"...", "!attn/attntest/..."}},
	{"internal/...", []string{"internal/..."}},
}

// Files of package saboteur with the build tag saboteurTag may also import mutants: kernels with
// bugs are in no program that is built without the tag.
const (
	mutants     = "attn/attntest/mutants"
	saboteur    = "lab/sabotage"
	saboteurTag = "//go:build sabotage"
)

// matches reports whether a pattern includes a package. Its name is relative to the module.
func matches(pattern, pkg string) bool {
	if pattern == "..." {
		return true
	}
	if dir, ok := strings.CutSuffix(pattern, "/..."); ok {
		return pkg == dir || strings.HasPrefix(pkg, dir+"/")
	}
	return pkg == pattern
}

// find returns the rule of a package.
func find(pkg string) (rule, bool) {
	var best rule
	for _, r := range table {
		if r.pkg == pkg {
			return r, true
		}
		if matches(r.pkg, pkg) && len(r.pkg) > len(best.pkg) {
			best = r
		}
	}
	return best, best.pkg != ""
}

// judge returns an error if a non-test file of pkg, behind the build constraint, may not import
// imp. Both names are relative to the module.
func judge(pkg, constraint, imp string) error {
	r, ok := find(pkg)
	if !ok {
		return fmt.Errorf("package %s is not in the table of internal/layers: say there what it may import", pkg)
	}
	if imp == mutants && pkg == saboteur && constraint == saboteurTag {
		return nil
	}
	if strings.HasSuffix(path.Base(imp), "test") && !strings.HasSuffix(path.Base(pkg), "test") {
		return fmt.Errorf("package %s imports %s, which is for tests", pkg, imp)
	}
	allowed := false
	for _, m := range r.may {
		if not, ok := strings.CutPrefix(m, "!"); ok {
			if matches(not, imp) {
				allowed = false
			}
		} else if matches(m, imp) {
			allowed = true
		}
	}
	if !allowed {
		return fmt.Errorf("package %s imports %s; it may import of this module: %v", pkg, imp, r.may)
	}
	return nil
}
