//go:build sabotage

package sabotage

import (
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/harness"
	"attnlab/harness/run"
	"attnlab/kernels"
)

// TestFaultInOneCell checks that a fault is in one cell and in none beside it: gate must name that
// cell and no other.
func TestFaultInOneCell(t *testing.T) {
	var isas []string
	for _, k := range kernels.All() {
		if algo, isa := k.Name(); algo == "flash" {
			isas = append(isas, isa)
		}
	}
	faulty := run.Point{
		Kernel: "flash", ISA: isas[len(isas)-1], Op: "softmax", Pass: "forward", Mask: "causal", Batch: 1, HeadsQ: 1, HeadsKV: 1, SeqQ: 256, SeqKV: 256,
		Dim: 64, DimV: 64, Layout: "bhsd", Data: "normal", Store: "f32", Threads: 1,
	}
	cells := []run.Point{faulty, faulty, faulty, faulty}
	cells[1].Mask = "full"
	cells[2].SeqQ, cells[2].SeqKV = 192, 192
	cells[3].Dim, cells[3].DimV = 32, 32
	for _, isa := range isas[:len(isas)-1] {
		other := faulty
		other.ISA = isa
		cells = append(cells, other)
	}
	for _, name := range faults {
		all := sabotaged(t, name)
		for i, at := range cells {
			checkFault(t, name, i == 0, weighed(t, all, at), weighed(t, kernels.All(), at))
			if _, slowed := planned(t, all, at).(slowPlan); slowed != (i == 0 && name == "slow") {
				t.Errorf("%s: %s is slowed: %v", name, at.Name(), slowed)
			}
		}
	}
}

// sabotaged returns the kernels of this module with a bug.
func sabotaged(t *testing.T, bug string) []attn.Kernel {
	t.Helper()
	t.Setenv(Variable, bug)
	all, err := Kernels(kernels.All())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// checkFault compares the memory of a cell with what it takes without the fault.
func checkFault(t *testing.T, name string, in bool, got, want harness.Memory) {
	t.Helper()
	if in && name == "scratch" {
		*want.Scratch += 1 << 20
	}
	if in && name == "alloc" {
		*want.Allocs++
	}
	if *got.Scratch != *want.Scratch || *got.Allocs != *want.Allocs {
		t.Errorf("%s: %d bytes of scratch and %d allocations, want %d and %d", name, *got.Scratch, *got.Allocs, *want.Scratch, *want.Allocs)
	}
}

// find returns the kernel of a point.
func find(t *testing.T, all []attn.Kernel, at run.Point) attn.Kernel {
	t.Helper()
	for _, k := range all {
		if algo, isa := k.Name(); algo == at.Kernel && isa == at.ISA {
			return k
		}
	}
	t.Fatalf("there is no kernel %s/%s", at.Kernel, at.ISA)
	return nil
}

// weighed measures the memory of a cell, whose plan must hold what its kernel says.
func weighed(t *testing.T, all []attn.Kernel, at run.Point) harness.Memory {
	t.Helper()
	w, err := harness.Attention(find(t, all, at), at)
	if err != nil {
		t.Fatal(err)
	}
	m, err := harness.MeasureMemory(w)
	if err != nil {
		t.Fatal(err)
	}
	if *m.Scratch != w.Scratch {
		t.Errorf("%s: %d bytes of scratch, and the kernel says %d", at.Name(), *m.Scratch, w.Scratch)
	}
	return m
}

// planned returns the plan of a point.
func planned(t *testing.T, all []attn.Kernel, at run.Point) attn.Plan {
	t.Helper()
	p, err := at.Problem()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := find(t, all, at).Plan(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// TestPathShowsThrough checks that a kernel with a bug has the path of the kernel it wraps.
func TestPathShowsThrough(t *testing.T) {
	path := func(k attn.Kernel) string {
		tuned, ok := k.(attn.Tuned)
		if !ok {
			return ""
		}
		return tuned.Path()
	}
	for _, bug := range append([]string{"slow3"}, faults...) {
		seen := 0
		for _, k := range sabotaged(t, bug) {
			algo, isa := k.Name()
			if algo != "flash" && algo != bug {
				continue
			}
			want := path(find(t, kernels.All(), run.Point{Kernel: "flash", ISA: isa}))
			if path(k) != want || want == "" {
				t.Errorf("%s: the path of %s/%s is %q, want %q", bug, algo, isa, path(k), want)
			}
			seen++
		}
		if seen == 0 {
			t.Errorf("%s: there is no flash", bug)
		}
	}
}

// TestBugs checks which names are bugs, and what a bug adds to the list of kernels.
func TestBugs(t *testing.T) {
	for bug, added := range map[string]int{"": 0, "drop_tail": 1, "alloc": 0, "slow": 0} {
		if n := len(sabotaged(t, bug)) - len(kernels.All()); n != added {
			t.Errorf("%q adds %d kernels, want %d", bug, n, added)
		}
	}
	for _, bug := range []string{"slwo", "slow0", "slow100", "slow03", "slow-3", "slow3x"} {
		t.Setenv(Variable, bug)
		if _, err := Kernels(kernels.All()); err == nil || !strings.Contains(err.Error(), Variable+"="+bug) {
			t.Errorf("%q: %v, want an error that names it", bug, err)
		}
	}
}
