// Package layers states which package of this module may import which. Its test parses every source
// file, whatever its build tags, and holds it to the table.
//
// The table is the architecture. Vocabulary (attn) imports nothing. Kernels import the vocabulary,
// the inner loops and what kernels share, and never each other. The harness judges and times
// kernels that are handed to it, so it cannot favour one. Only commands import everything.
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
	{"attn/attntest/mutants", []string{"attn", "attn/cases", "attn/attntest/...", "kernels/scalar"}}, // kernels themselves

	{"kernels/asm", nil},
	{"kernels/asm/asmtest", []string{"kernels/asm"}},
	{"kernels/asm/internal/...", []string{"kernels/asm/internal/..."}},
	{"kernels/...", []string{"attn", "kernels/asm", "kernels/scalar", "kernels/operand"}}, // a kernel, such as linear
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
	{"harness/...", []string{"attn", "attn/oracle", "attn/cases", "harness/...", "internal/group"}},
	{"harness/gate", []string{"harness/...", "internal/markdown"}},
	{"reports/...", []string{"harness/run", "harness/stats", "harness/history", "internal/canvas", "internal/markdown"}},

	{"theory/equations", []string{"attn", "attn/oracle", "theory/...", "nn/..."}},
	{"theory/figures", []string{"attn", "attn/oracle", "theory/...", "!theory/equations", "internal/canvas"}},
	{"theory/...", []string{"attn", "attn/oracle", "theory/...", "!theory/equations"}},
	{"nn/...", []string{"attn", "attn/oracle", "kernels/asm", "theory/...", "!theory/equations", "nn/..."}},

	{"cmd/...", []string{"...", "!attn/attntest/..."}},
	{"examples/...", []string{"...", "!attn/attntest/..."}},
	{"internal/...", []string{"internal/..."}},
}

// mutants is what a file of a command may import besides, behind a build tag that begins with
// mutantTag.
const (
	mutants   = "attn/attntest/mutants"
	mutantTag = "mutant_"
)

// matches says whether a package, named relative to the module, is in a pattern.
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

// judge says what is wrong with a non-test file of pkg, which stands behind the build constraint,
// importing imp; both are relative to the module.
func judge(pkg, constraint, imp string) error {
	r, ok := find(pkg)
	if !ok {
		return fmt.Errorf("package %s is not in the table of internal/layers: say there what it may import", pkg)
	}
	if imp == mutants && strings.HasPrefix(pkg, "cmd/") && strings.Contains(constraint, mutantTag) && !strings.Contains(constraint, "!") {
		return nil
	}
	if strings.HasSuffix(path.Base(imp), "test") {
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
