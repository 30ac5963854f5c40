// Package equations is the source documents as a table of executable checks. A row has a numbered
// statement in plain notation and a check that computes both of its sides. A row passes by
// computing, never by a stored verdict.
//
// A check writes its equation out as loops over indices where the source does. It compares the
// result with the packages under theory, with the figures that the sources print, and with kernels.
// A kernel must agree within the tolerance of package oracle: the error that float32 arithmetic may
// have on these numbers.
//
// A check marks the ingredients of its equation: a sign, an index, a factor. A test changes each
// ingredient in turn and demands that the check then fails; see [Check].
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

// A Row is one statement of the source documents. A row with neither Check nor Kernel gives the
// reason in Is and Of.
type Row struct {
	ID        string // its first letter is the source
	Statement string // in plain notation
	Check     func(*Check)
	// Kernel runs on the definition and on every kernel that claims the problem.
	Kernel func(*Check, bridge.Attention)
	// Is is Alias, Prose or Pending for a row that computes nothing, else empty.
	Is Verdict
	// Of names the rows that an alias stands for, the symbols whose documentation has the prose, or
	// what a pending row waits for.
	Of []string
}

// Source returns the name of the document that the row is from.
func (r *Row) Source() string {
	return map[byte]string{'T': "tutorial", 'P': "paper", 'D': "page", 'N': "notes", 'L': "lesson", 'M': "library"}[r.ID[0]]
}

// Computed reports whether the row has something to compute.
func (r *Row) Computed() bool { return r.Check != nil || r.Kernel != nil }

// A Verdict is the result of a row, or of a row on one kernel.
type Verdict string

// Verdicts. A kernel that lacks a feature leaves the row unclaimed. That does not make the row
// fail.
const (
	Pass      Verdict = "pass"
	Fail      Verdict = "fail"
	Alias     Verdict = "alias"
	Prose     Verdict = "prose"
	Pending   Verdict = "pending"
	Unclaimed Verdict = "unclaimed"
)

// A Result is the result of one row.
type Result struct {
	ID, Source, Statement string
	Verdict               Verdict   // fail if any outcome fails
	Of                    []string  `json:",omitempty"`
	Outcomes              []Outcome `json:",omitempty"`
}

// An Outcome is the result of one check. By is empty for a check of the mathematics; else it names
// the definition or a kernel.
type Outcome struct {
	By              string `json:",omitempty"`
	Verdict         Verdict
	Residual, Bound Number    // those of the fact that is closest to failing
	What            string    `json:",omitempty"` // that fact, or why it is unclaimed
	Facts           []Fact    `json:",omitempty"`
	Errata          []Erratum `json:",omitempty"`
	Notes           []string  `json:",omitempty"`
}

// Env is the surroundings of checks.
type Env struct {
	Kernels []attn.Kernel
	Clock   func() time.Duration
	// Products returns the matrix products for the layers of one check. One goroutine at a time
	// uses them. Without Products, rows that need layers fail.
	Products func() *nn.Multiplier
	// KernelsOnly runs only what a row asks of kernels: no mathematics, no definition.
	KernelsOnly bool
}

// Run runs rows in order and calls each with every result. It stops between checks when the context
// ends, and returns its error.
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

// A check is one check of a row. The name by is empty for the mathematics.
type check struct {
	by  string
	run func(*Check)
}

// checks returns the checks of a row: of its mathematics, then of the definition, then of each
// kernel.
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
	// Check.Fail would panic here: it ends the check of a mutant.
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

// A Chapter is the rows on one subject, from all sources.
type Chapter struct {
	Title string
	Rows  []Row
}

// Chapters returns all rows in reading order.
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
		{"Algorithms and their cost", algorithms()},
		{"Models", models()},
	}
}

// Table returns the rows of all chapters.
func Table() []Row {
	var rows []Row
	for _, c := range Chapters() {
		rows = append(rows, c.Rows...)
	}
	return rows
}

// Select returns the rows that match any of ids and come from the named source. An id that ends in
// * matches every ID with that prefix. Empty ids and an empty source match all rows. Select also
// returns the ids that match no row.
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
