//go:build slow

package main

import (
	"testing"

	"attnlab/attn"
	"attnlab/harness"
	"attnlab/harness/run"
	"attnlab/kernels"
)

// A fault is in one cell and in none beside it: else gate would be tried on something else.
func TestFaultInOneCell(t *testing.T) {
	isas := isasOf(kernels.All(), "flash")
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
		all, err := withFault(kernels.All(), name)
		if err != nil {
			t.Fatal(err)
		}
		for i, at := range cells {
			checkFault(t, name, i == 0, weighed(t, all, at), weighed(t, kernels.All(), at))
			if _, slowed := planned(t, all, at).(slowPlan); slowed != (i == 0 && name == "slow") {
				t.Errorf("%s: %s is slowed: %v", name, at.Name(), slowed)
			}
		}
	}
}

// checkFault holds the memory of a cell against that without the fault.
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

// weighed measures the memory of a cell, whose plan must take what its kernel says.
func weighed(t *testing.T, all []attn.Kernel, at run.Point) harness.Memory {
	t.Helper()
	w, err := newLab(all).Workload(at)
	if err != nil {
		t.Fatal(err)
	}
	m, err := harness.Weigh(w)
	if err != nil {
		t.Fatal(err)
	}
	if *m.Scratch != w.Scratch {
		t.Errorf("%s: %d bytes of scratch, and the kernel says %d", at.Name(), *m.Scratch, w.Scratch)
	}
	return m
}

func planned(t *testing.T, all []attn.Kernel, at run.Point) attn.Plan {
	t.Helper()
	k, err := newLab(all).Kernel(at.Kernel, at.ISA)
	if err != nil {
		t.Fatal(err)
	}
	p, err := at.Problem()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := k.Plan(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func TestFaultUnknown(t *testing.T) {
	if all, err := withFault(kernels.All(), "slwo"); err == nil {
		t.Errorf("a fault that is not there gave %d kernels", len(all))
	}
}
