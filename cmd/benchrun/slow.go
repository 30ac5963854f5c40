//go:build slow

package main

import (
	"fmt"
	"time"

	"attnlab/attn"
	"attnlab/kernels"
)

// slowed are kernels that waste a stated part of their time, in per cent: what ab is tried on (reports/rates.sh).
func slowed() []attn.Kernel {
	var all []attn.Kernel
	for _, percent := range []int{3, 5} {
		for _, k := range kernels.All() {
			if algo, _ := k.Name(); algo == "flash" {
				all = append(all, slow{k, percent})
			}
		}
	}
	return all
}

// slow is flash that takes so many per cent longer.
type slow struct {
	attn.Kernel
	percent int
}

func (k slow) Name() (algo, isa string) {
	_, isa = k.Kernel.Name()
	return fmt.Sprintf("slow%d", k.percent), isa
}

func (k slow) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	plan, err := k.Kernel.Plan(p, team)
	return slowPlan{plan, k.percent}, err
}

type slowPlan struct {
	attn.Plan
	percent int
}

func (p slowPlan) Forward(a *attn.Args) {
	begun := time.Now()
	p.Plan.Forward(a)
	for took := time.Since(begun); time.Since(begun) < took+took*time.Duration(p.percent)/100; { // busy: the time of a sleep is not the thread's
	}
}
