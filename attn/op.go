package attn

import (
	"fmt"
	"slices"
	"strings"
)

// An Op is a kind of attention. It is an index into the table of operations below. Package oracle
// has a table of definitions and package cases a table of families of cases, both indexed by Op.
type Op uint8

// Operations.
const (
	OpSoftmax Op = iota
	OpLinear
	opEnd
)

// The first abilities are the operations: bit op is the ability to compute operation op.
const (
	NeedSoftmax Needs = 1 << OpSoftmax
	NeedLinear  Needs = 1 << OpLinear
)

// Groups of abilities that a kind of attention takes as a whole.
const (
	anyMask  = NeedWindow | NeedBool | NeedPacked | NeedBlock
	anyStore = NeedTypes | NeedLengths | NeedRagged | NeedPages
)

// AllRules is every ability that the rule of a linear problem can need.
const AllRules = NeedHeadGate | NeedKeyGate | NeedDelta | NeedNorm | NeedHeadsV | NeedSnapshots

// AllSoftmax is every ability that a problem of softmax attention can need.
const AllSoftmax = NeedSoftmax | AllNeeds&^(1<<opEnd-1|AllRules)

// An operation is one entry of the table.
type operation struct {
	name string
	// takes is the set of abilities that a problem of this kind may need besides the operation
	// itself.
	takes Needs
	// check returns an error for a field that the operation does not take and that no ability
	// covers. A nil check accepts all.
	check func(p *Problem) error
	// flop returns the arithmetic operations of both passes. queries is the number of query rows
	// over all batch entries and query heads.
	flop func(p *Problem, c *Count, queries int64) (forward, backward int64)
	// lse is set if weights are exponentials over their sum, so that a row has an LSE.
	lse bool
	// averages reports whether the weights of a row sum to 1. A nil averages means never.
	averages func(p *Problem) bool
}

var operations = [opEnd]operation{
	OpSoftmax: {
		name:  "softmax",
		takes: AllSoftmax &^ NeedSoftmax,
		check: noLinear,
		flop: func(p *Problem, c *Count, _ int64) (forward, backward int64) {
			return fiveForTwo(times(2*(int64(p.Dim)+int64(p.DimV)), c.Pairs))
		},
		lse:      true,
		averages: func(p *Problem) bool { return p.Score.Terms&TermSinks == 0 },
	},
	OpLinear: {
		name:     "linear",
		takes:    anyMask | anyStore | NeedGrad | AllRules,
		check:    checkLinear,
		flop:     linearFlop,
		averages: func(p *Problem) bool { return !p.Linear.Unnormalised && p.Linear.Eps == 0 },
	},
}

// noLinear returns an error if a field of linear attention is set.
func noLinear(p *Problem) error {
	if p.Linear != (Linear{}) {
		return fmt.Errorf("problem: fields of Linear are set, but op is %v", p.Op)
	}
	return nil
}

// fiveForTwo returns the operations of both passes, given those of the forward pass. The backward
// pass computes five products where the forward pass computes two.
func fiveForTwo(flop int64) (forward, backward int64) { return flop, times(5, flop/2) }

// Ops lists the operations in the order of their numbers.
func Ops() []Op {
	all := make([]Op, opEnd)
	for i := range all {
		all[i] = Op(i)
	}
	return all
}

// OpByName returns the operation of that name.
func OpByName(s string) (Op, error) {
	names := make([]string, opEnd)
	for i := range operations {
		if names[i] = operations[i].name; names[i] == s {
			return Op(i), nil
		}
	}
	return 0, fmt.Errorf("op %q: one of %s", s, strings.Join(names, ", "))
}

// OpsOf lists the operations that a kernel computes. It trusts the claims of a Foreign kernel. Of
// any other kernel it checks a small plain problem of each operation.
func OpsOf(k Kernel) []Op {
	has := func(op Op) bool {
		p := Problem{Op: op, Batch: 1, SeqQ: 4, SeqKV: 4, HeadsQ: 1, HeadsKV: 1, Dim: 8, DimV: 8}
		_, err := k.Check(p, 1)
		return err == nil
	}
	if f, ok := k.(Foreign); ok {
		claims := f.Claims()
		has = func(op Op) bool { return claims&op.Need() != 0 }
	}
	return slices.DeleteFunc(Ops(), func(op Op) bool { return !has(op) })
}

// String returns the name used in flags and benchmark keys.
func (o Op) String() string { return o.entry().name }

// entry returns the table's entry of an operation. An unknown operation has an entry with only a
// name.
func (o Op) entry() operation {
	if o < opEnd {
		return operations[o]
	}
	return operation{name: fmt.Sprintf("op(%d)", uint8(o))}
}

// Need returns the ability to compute the operation.
func (o Op) Need() Needs { return 1 << o & (1<<opEnd - 1) }

// Takes returns the abilities that a problem of this kind may need besides Need.
func (o Op) Takes() Needs { return o.entry().takes }

// HasLSE reports whether the weights of a row are exponentials over their sum. If so, three things
// hold: a row has an LSE, which the backward pass reads; a constant added to all scores of a row
// changes no weight; and Merge joins the results of KV splits.
func (o Op) HasLSE() bool { return o.entry().lse }

// ReadsLSE reports whether the backward pass of a problem reads Stats.LSE.
func (p *Problem) ReadsLSE() bool { return p.Want&WantGrad != 0 && p.Op.HasLSE() }

// Averages reports whether an output is a weighted mean of the values, that is, whether the weights
// of a row sum to 1.
func (p *Problem) Averages() bool {
	averages := p.Op.entry().averages
	return averages != nil && averages(p)
}

// checkOp returns an error for what a valid problem may have, but not a problem of its kind.
func (p *Problem) checkOp() error {
	if other := p.Needs() &^ (p.Op.Need() | p.Op.Takes()); other != 0 {
		return fmt.Errorf("problem: op %v has no %v: leave it out", p.Op, other)
	}
	if check := p.Op.entry().check; check != nil {
		return check(p)
	}
	return nil
}
