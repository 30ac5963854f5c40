// Package equations is the source documents as a table of executable checks: each numbered
// statement, what it says in plain notation, and a check that computes both of its sides. A row
// passes by computing, never by a stored verdict.
//
// A check writes its equation out, in loops over indices where that is how the source has it, and
// compares with what the packages under theory compute, with figures printed in the sources, and
// with kernels. What a kernel is held to is the tolerance of package oracle: the error that float32
// arithmetic is entitled to on those very numbers. The ingredients of an equation (a sign, an
// index, a factor) are marked where they stand, and a test demands that the check fails with any of
// them changed: see Check.
//
// Kernels, matrix products and the clock are arguments.
package equations

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"attnlab/attn"
	"attnlab/nn"
	"attnlab/theory/bridge"
)

// A Row is one statement of the source documents. Rows that have neither Check nor Kernel say why
// in Is and Of.
type Row struct {
	ID        string // of the inventory: its first letter is the source
	Statement string // in plain notation
	Check     func(*Check)
	Kernel    func(*Check, bridge.Attention) // asked of the definition, and of every kernel that claims the problem
	Is        Verdict                        // Alias, Prose or Pending; empty where there is something to compute
	Of        []string                       // the rows that it is an alias of; the symbols whose documentation it is; what it waits for
}

// Source is the document that a row is of.
func (r *Row) Source() string {
	return map[byte]string{'T': "tutorial", 'P': "paper", 'D': "page", 'N': "notes", 'L': "lesson", 'M': "library"}[r.ID[0]]
}

// Computed says whether the row has something to compute.
func (r *Row) Computed() bool { return r.Check != nil || r.Kernel != nil }

// A Verdict is what is said of a row, or of a row and a kernel.
type Verdict string

// Verdicts. A kernel that does not do what a row asks has not claimed it, which is not the row's
// verdict.
const (
	Pass      Verdict = "pass"
	Fail      Verdict = "fail"
	Alias     Verdict = "alias"
	Prose     Verdict = "prose"
	Pending   Verdict = "pending"
	Unclaimed Verdict = "unclaimed"
)

// A Result is what is said of one row.
type Result struct {
	ID, Source, Statement string
	Verdict               Verdict   // fail, if any outcome is
	Of                    []string  `json:",omitempty"`
	Outcomes              []Outcome `json:",omitempty"`
}

// An Outcome is the verdict of one check: of the mathematics where By is empty, of the definition,
// or of a kernel.
type Outcome struct {
	By              string `json:",omitempty"`
	Verdict         Verdict
	Residual, Bound Number    // of the fact that is closest to failing
	What            string    `json:",omitempty"` // that fact; why, where a kernel has not claimed the row
	Facts           []Fact    `json:",omitempty"`
	Errata          []Erratum `json:",omitempty"`
	Notes           []string  `json:",omitempty"`
}

// Env is what checks are given.
type Env struct {
	Kernels     []attn.Kernel
	Clock       func() time.Duration
	Products    func() *nn.Multiplier // makes the matrix products of a check's layers, which are used by one goroutine at a time; rows of layers fail without
	KernelsOnly bool                  // leave the mathematics and the definition out, and rows that ask nothing of a kernel
}

// Run runs the given rows, in their order, and hands every result to each. It stops between checks
// when the context ends, and says so.
func Run(ctx context.Context, env Env, rows []Row, each func(Result)) error {
	for i := range rows {
		r := &rows[i]
		if env.KernelsOnly && r.Kernel == nil {
			continue
		}
		res, err := r.Run(ctx, env)
		if err != nil {
			return err
		}
		each(res)
	}
	return nil
}

// Run runs the checks of one row.
func (r *Row) Run(ctx context.Context, env Env) (Result, error) {
	res := Result{ID: r.ID, Source: r.Source(), Statement: r.Statement, Verdict: r.Is, Of: r.Of}
	for _, check := range r.checks(env) {
		if err := ctx.Err(); err != nil {
			return res, err
		}
		res.Outcomes = append(res.Outcomes, check.outcome(newCheck(r.ID, env)))
	}
	if r.Computed() {
		res.Verdict = Unclaimed
	}
	for _, o := range res.Outcomes {
		if o.Verdict == Fail || res.Verdict == Unclaimed {
			res.Verdict = o.Verdict
		}
	}
	return res, ctx.Err()
}

// A check is one of a row's: by is empty for its mathematics.
type check struct {
	by  string
	run func(*Check)
}

// checks are those of a row: its mathematics, then what it asks of the definition and of kernels.
func (r *Row) checks(env Env) (list []check) {
	if r.Check != nil && !env.KernelsOnly {
		list = append(list, check{"", r.Check})
	}
	if r.Kernel == nil {
		return list
	}
	var all []bridge.Attention
	if !env.KernelsOnly {
		all = append(all, bridge.Attention{})
	}
	for _, k := range env.Kernels {
		all = append(all, bridge.Through(k))
	}
	for _, a := range all {
		list = append(list, check{a.Name(), func(c *Check) { r.Kernel(c, a) }})
	}
	return list
}

// outcome runs a check.
func (k check) outcome(c *Check) Outcome {
	o := Outcome{By: k.by, Verdict: Pass}
	// Check.Fail would end the check of a mutant, which has ended.
	fail := func(what string) { c.facts = append(c.facts, Fact{what, Number(math.Inf(1)), 0}) }
	switch err := c.run(k.run); {
	case errors.Is(err, attn.ErrUnsupported) && k.by != "":
		o.Verdict, o.What = Unclaimed, err.Error()
		return o
	case err != nil && !errors.Is(err, errFound):
		fail(err.Error())
	}
	if len(c.facts) == 0 {
		fail("nothing was compared")
	}
	worst := c.facts[0]
	for _, f := range c.facts[1:] {
		if f.ratio() > worst.ratio() {
			worst = f
		}
	}
	o.Residual, o.Bound, o.What, o.Facts, o.Errata, o.Notes = worst.Residual, worst.Bound, worst.What, c.facts, c.errata, c.notes
	if !worst.Holds() {
		o.Verdict = Fail
	}
	return o
}

// A Chapter is the rows of one subject, from whichever source.
type Chapter struct {
	Title string
	Rows  []Row
}

// Chapters are all rows, in an order to read them in.
func Chapters() []Chapter {
	return []Chapter{
		{"Index notation", indexNotation()},
		{"Bilinear forms and metrics", bilinearForms()},
		{"Attention", attention()},
		{"The Gibbs view", gibbsView()},
		{"Gradients", gradients()},
		{"Geometry", geometryOfScores()},
		{"Kernel regression and linear attention", regressions()},
		{"Hopfield memories", memories()},
		{"Masks and positions", masksAndPositions()},
		{"Algorithms and what they cost", algorithms()},
		{"Models", models()},
	}
}

// Table is the rows of all chapters.
func Table() []Row {
	var rows []Row
	for _, c := range Chapters() {
		rows = append(rows, c.Rows...)
	}
	return rows
}

// Select returns the rows whose ID is one of ids, or begins with one that ends in *, and whose
// source is the one named. Empty selects all. It also returns the ids that no row has.
func Select(rows []Row, ids []string, source string) (some []Row, missing []string) {
	found := map[string]bool{}
	for _, r := range rows {
		hit := len(ids) == 0
		for _, id := range ids {
			prefix, wild := strings.CutSuffix(id, "*")
			if r.ID == id || wild && strings.HasPrefix(r.ID, prefix) {
				hit, found[id] = true, true
			}
		}
		if hit && (source == "" || r.Source() == source) {
			some = append(some, r)
		}
	}
	for _, id := range ids {
		if !found[id] {
			missing = append(missing, id)
		}
	}
	return some, missing
}
