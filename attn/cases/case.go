package cases

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"attnlab/attn"
)

// A Case is one call to test.
type Case struct {
	Family, Name string // together they are the path of a subtest
	Problem      attn.Problem
	Core         bool // the case is part of the quick subset
	Layout, Data string
	edit         func(p *attn.Problem, a *attn.Args, r rnd) // changes operands after Fill
	shift        func(p *attn.Problem, a *attn.Args)        // moves scores far from 0, after edit
}

// String returns the case's path.
func (c *Case) String() string { return c.Family + "/" + c.Name }

// Seed returns a hash of the path.
func (c *Case) Seed() uint64 {
	h := fnv.New64a()
	h.Write([]byte(c.String()))
	return h.Sum64()
}

// Only returns the case with only those of its by-products that are in keep, for a kernel that
// computes fewer.
func (c Case) Only(keep attn.Want) Case {
	c.Problem.Want &= keep
	return c
}

// In returns the case in another layout. The numbers stay the same, unless the layout shares rows
// or cannot hold them.
func (c Case) In(layout string) Case {
	c.Layout = layout
	return c
}

// With returns the case with its operands edited after Fill.
func (c Case) With(edit func(p *attn.Problem, a *attn.Args, r *rand.Rand)) Case {
	c.edit = edit
	return c
}

// Args builds new operands. Outputs, gaps and padding hold Poison. All float operands are cut from
// slab, except a bias with a shape of its own.
func (c *Case) Args() (a *attn.Args, slab []float32, err error) {
	n, err := SlabLen(c.Problem, c.Layout)
	if err != nil {
		return nil, nil, fmt.Errorf("case %v: %w", c, err)
	}
	slab = make([]float32, n)
	for i := range slab {
		slab[i] = Poison
	}
	if a, err = NewArgs(c.Problem, c.Layout, slab); err != nil {
		return nil, nil, fmt.Errorf("case %v: %w", c, err)
	}
	if err = Fill(c.Data, c.Problem, a, c.Seed()); err != nil {
		return nil, nil, fmt.Errorf("case %v: %w", c, err)
	}
	if c.Problem.Out != attn.F32 {
		Rows(&a.Out, func(_, _, _ int, row []float32) { fill(row, Poison) })
	}
	if c.edit != nil {
		c.edit(&c.Problem, a, rand.New(rand.NewPCG(c.Seed(), 5)))
	}
	if c.shift != nil {
		c.shift(&c.Problem, a)
	}
	return a, slab, nil
}

// Poison is a NaN with a payload that no arithmetic produces. It distinguishes memory that was
// never written from a computed NaN. Rounded to 16 bits it still has such a payload.
var Poison = math.Float32frombits(0x7fda_dead)

var poisons = [...]uint32{
	math.Float32bits(Poison), math.Float32bits(attn.FromF16(attn.ToF16(Poison))), math.Float32bits(attn.FromBF16(attn.ToBF16(Poison))),
}

// IsPoison reports whether x is Poison, bit for bit, or came from it through a 16-bit type.
func IsPoison(x float32) bool { return slices.Contains(poisons[:], math.Float32bits(x)) }

// All lists every case, family by family.
func All() []Case { return slices.Clone(all()) }

// all builds the list of cases once: that takes time, and every kernel is tested with all cases
// many times.
var all = sync.OnceValue(func() []Case {
	l := new(list)
	for _, l.op = range attn.Ops() {
		for _, f := range familiesOf(l.op) {
			l.family = f.name
			f.add(l)
		}
	}
	return l.cases
})

// Core lists the quick subset. It has every family and every idea, at the smallest sizes that
// exceed one tile.
func Core() []Case {
	var core []Case
	for _, c := range All() {
		if c.Core {
			core = append(core, c)
		}
	}
	return core
}

// Of lists the cases of an operation.
func Of(op attn.Op) []Case {
	return slices.DeleteFunc(All(), func(c Case) bool { return c.Problem.Op != op })
}

// Families lists the families in order.
func Families() []string {
	var names []string
	for _, c := range All() {
		if len(names) == 0 || names[len(names)-1] != c.Family {
			names = append(names, c.Family)
		}
	}
	return names
}

type rnd = *rand.Rand

// A list collects the cases of the families.
type list struct {
	op     attn.Op
	family string
	cases  []Case
}

// add appends a case of the operation with plain defaults. The returned pointer is valid until the
// next add.
func (l *list) add(name string, p attn.Problem) *Case {
	p.Op = l.op
	l.cases = append(l.cases, Case{Family: l.family, Name: name, Problem: p, Layout: "bhsd", Data: "normal"})
	return &l.cases[len(l.cases)-1]
}

func (c *Case) core(yes bool) *Case { c.Core = yes; return c }

func (c *Case) data(dist string) *Case { c.Data = dist; return c }

func (c *Case) in(layout string) *Case { c.Layout = layout; return c }

func (c *Case) with(edit func(p *attn.Problem, a *attn.Args, r rnd)) *Case {
	c.edit = edit
	return c
}

// rowStats are the by-products that every row of a softmax has.
const rowStats = attn.WantLSE | attn.WantMean | attn.WantEntropy

// head returns a softmax problem of one batch entry and one head.
func head(nq, nk, d, dv int) attn.Problem { return problem(1, nq, nk, 1, 1, d, dv) }

func problem(b, nq, nk, hq, hkv, d, dv int) attn.Problem {
	return attn.Problem{Batch: b, SeqQ: nq, SeqKV: nk, HeadsQ: hq, HeadsKV: hkv, Dim: d, DimV: dv}
}

// masked returns p with a mask.
func masked(p attn.Problem, m attn.Mask) attn.Problem {
	p.Mask = m
	return p
}

func wanting(p attn.Problem, w attn.Want) attn.Problem {
	p.Want = w
	return p
}
