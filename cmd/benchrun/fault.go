//go:build slow

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"attnlab/attn"
)

// fault is what is wrong in this build: what gate is tried on (reports/gates.sh). The linker sets
// it, go build -tags slow -ldflags "-X main.fault=slow", to one of faults.
var fault string

// faults are what may be wrong with the fastest flash at faultyProblem, and nowhere else:
//
//	alloc    each call allocates one more object
//	scratch  the plan holds 1 MiB more
//	slow     the speed is nine tenths
var faults = []string{"alloc", "scratch", "slow"}

var faultyProblem = attn.Problem{Batch: 1, SeqQ: 256, SeqKV: 256, HeadsQ: 1, HeadsKV: 1, Dim: 64, DimV: 64, Mask: attn.Causal()}

const moreScratch = 1 << 20

// faulty gives the kernels the fault of this build. It ends the process if there is no such fault.
func faulty(all []attn.Kernel) []attn.Kernel {
	if fault == "" {
		return all
	}
	all, err := withFault(all, fault)
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchrun:", err)
		os.Exit(exitUsage)
	}
	return all
}

// withFault returns the kernels with the named fault in one of them.
func withFault(all []attn.Kernel, name string) ([]attn.Kernel, error) {
	if !slices.Contains(faults, name) {
		return nil, fmt.Errorf("built with -X main.fault=%s: want one of %s", name, strings.Join(faults, ", "))
	}
	all = slices.Clone(all)
	for i, k := range slices.Backward(all) { // the fastest of an algorithm is its last
		if algo, _ := k.Name(); algo == "flash" {
			all[i] = faultyKernel{k, name}
			break
		}
	}
	return all, nil
}

type faultyKernel struct {
	attn.Kernel
	fault string
}

func (k faultyKernel) Check(p attn.Problem, workers int) (scratch int64, err error) {
	scratch, err = k.Kernel.Check(p, workers)
	if err == nil && p == faultyProblem && k.fault == "scratch" {
		scratch += moreScratch
	}
	return scratch, err
}

func (k faultyKernel) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	plan, err := k.Kernel.Plan(p, team)
	if err != nil || p != faultyProblem {
		return plan, err
	}
	switch k.fault {
	case "alloc":
		return &allocatingPlan{Plan: plan}, nil
	case "scratch":
		return largePlan{plan, make([]byte, moreScratch)}, nil
	}
	return slowPlan{plan, 1/0.9 - 1}, nil
}

// allocatingPlan allocates an object in each call.
type allocatingPlan struct {
	attn.Plan
	last *[64]byte
}

func (p *allocatingPlan) Forward(a *attn.Args) {
	p.last = new([64]byte)
	p.Plan.Forward(a)
}

// largePlan holds memory that it has no use for.
type largePlan struct {
	attn.Plan
	more []byte
}

func (p largePlan) Scratch() int64 { return p.Plan.Scratch() + int64(len(p.more)) }
