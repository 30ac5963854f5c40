package harnesstest

import (
	"attnlab/attn"
	"attnlab/kernels/naive"
)

// An Odd is kernel naive under another name, with one difference.
type Odd struct {
	Algo      string
	OnCheck   func(p attn.Problem) error           // nil: naive's
	OnForward func(a *attn.Args, honest attn.Plan) // nil: naive's
}

// Name implements attn.Kernel.
func (k Odd) Name() (algo, isa string) { return k.Algo, "go" }

// Check implements attn.Kernel.
func (k Odd) Check(p attn.Problem, workers int) (int64, error) {
	n, err := naive.New().Check(p, workers)
	if err == nil && k.OnCheck != nil {
		err = k.OnCheck(p)
	}
	return n, err
}

// Plan implements attn.Kernel.
func (k Odd) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	if _, err := k.Check(p, team.Workers()); err != nil {
		return nil, err
	}
	honest, err := naive.New().Plan(p, team)
	return oddPlan{honest, k}, err
}

type oddPlan struct {
	attn.Plan
	k Odd
}

func (p oddPlan) Forward(a *attn.Args) {
	if p.k.OnForward == nil {
		p.Plan.Forward(a)
		return
	}
	p.k.OnForward(a, p.Plan)
}
