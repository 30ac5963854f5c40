//go:build sabotage

package sabotage

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"attnlab/attn"
	"attnlab/attn/attntest/mutants"
)

// Variable is the environment variable that names the bug. Without it there is none.
const Variable = "BENCHRUN_SABOTAGE"

// Kernels returns the kernels with the bug that $BENCHRUN_SABOTAGE names.
func Kernels(all []attn.Kernel) ([]attn.Kernel, error) {
	name := os.Getenv(Variable)
	if name == "" {
		return all, nil
	}
	return with(all, name)
}

// with returns the kernels with a bug.
func with(all []attn.Kernel, bug string) ([]attn.Kernel, error) {
	if slices.Contains(faults, bug) {
		return withFault(all, bug), nil
	}
	if percent, err := strconv.Atoi(strings.TrimPrefix(bug, "slow")); err == nil && bug == fmt.Sprintf("slow%d", percent) && 0 < percent && percent < 100 {
		return append(slices.Clone(all), slowed(all, percent)...), nil
	}
	if m, ok := mutants.ByName(bug); ok {
		return append(slices.Clone(all), m.Kernel), nil
	}
	return nil, fmt.Errorf("%s=%s: there is no such bug; name a mutant of attn/attntest/mutants, slow3 or another percentage, or one of %s", Variable, bug, strings.Join(faults, ", "))
}

// faults are the bugs of one cell.
var faults = []string{"alloc", "scratch", "slow"}

// faultyProblem is the problem of that cell.
var faultyProblem = attn.Problem{Batch: 1, SeqQ: 256, SeqKV: 256, HeadsQ: 1, HeadsKV: 1, Dim: 64, DimV: 64, Mask: attn.Causal()}

// moreScratch is the number of bytes that the bug scratch adds.
const moreScratch = 1 << 20

// withFault returns the kernels with a fault in the fastest flash, which is the last of its name.
func withFault(all []attn.Kernel, fault string) []attn.Kernel {
	all = slices.Clone(all)
	for i, k := range slices.Backward(all) {
		if algo, _ := k.Name(); algo == "flash" {
			all[i] = faultyKernel{wrapped{k}, fault}
			break
		}
	}
	return all
}

// A wrapped kernel is another kernel that still shows its path.
type wrapped struct{ attn.Kernel }

// Path returns the path of the kernel, if it has one: [attn.Tuned].
func (k wrapped) Path() string {
	if t, ok := k.Kernel.(attn.Tuned); ok {
		return t.Path()
	}
	return ""
}

// A faultyKernel has a fault at faultyProblem.
type faultyKernel struct {
	wrapped
	fault string
}

// Check returns the scratch memory with the fault's share.
func (k faultyKernel) Check(p attn.Problem, workers int) (scratch int64, err error) {
	scratch, err = k.Kernel.Check(p, workers)
	if err == nil && p == faultyProblem && k.fault == "scratch" {
		scratch += moreScratch
	}
	return scratch, err
}

// Plan returns a plan that has the fault, if it is one of faultyProblem.
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

// An allocatingPlan allocates an object in each call.
type allocatingPlan struct {
	attn.Plan
	last *[64]byte
}

// Forward allocates, and runs the plan.
func (p *allocatingPlan) Forward(a *attn.Args) {
	p.last = new([64]byte)
	p.Plan.Forward(a)
}

// A largePlan holds memory that it does not use.
type largePlan struct {
	attn.Plan
	more []byte
}

// Scratch returns the memory with what is not used.
func (p largePlan) Scratch() int64 { return p.Plan.Scratch() + int64(len(p.more)) }

// slowed returns a slower twin of every flash kernel.
func slowed(all []attn.Kernel, percent int) []attn.Kernel {
	var twins []attn.Kernel
	for _, k := range all {
		if algo, _ := k.Name(); algo == "flash" {
			twins = append(twins, slowKernel{wrapped{k}, percent})
		}
	}
	return twins
}

// A slowKernel takes longer, by a percentage of its time.
type slowKernel struct {
	wrapped
	percent int
}

// Name returns slow3 for a percentage of 3.
func (k slowKernel) Name() (algo, isa string) {
	_, isa = k.Kernel.Name()
	return fmt.Sprintf("slow%d", k.percent), isa
}

// Plan returns a plan that takes longer.
func (k slowKernel) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	plan, err := k.Kernel.Plan(p, team)
	if err != nil {
		return nil, err
	}
	return slowPlan{plan, float64(k.percent) / 100}, nil
}

// A slowPlan takes longer, by a part of its time.
type slowPlan struct {
	attn.Plan
	longer float64
}

// Forward runs the plan, and then keeps the thread busy: a sleep would not count as its CPU time.
func (p slowPlan) Forward(a *attn.Args) {
	begun := time.Now()
	p.Plan.Forward(a)
	until := time.Duration(float64(time.Since(begun)) * (1 + p.longer))
	for time.Since(begun) < until {
	}
}
