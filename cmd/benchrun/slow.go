//go:build slow

package main

import (
	"fmt"
	"time"

	"attnlab/attn"
	"attnlab/kernels"
)

// slowed are kernels that waste a stated part of their time, in per cent: what ab is tried on
// (reports/rates.sh).
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
	return slowPlan{plan, float64(k.percent) / 100}, err
}

// slowPlan takes longer, by that part of its time.
type slowPlan struct {
	attn.Plan
	longer float64
}

func (p slowPlan) Forward(a *attn.Args) {
	begun := time.Now()
	p.Plan.Forward(a)
	until := time.Duration(float64(time.Since(begun)) * (1 + p.longer))
	for time.Since(begun) < until { // busy: the time of a sleep is not the thread's
	}
}
