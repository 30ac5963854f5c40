// Package equations is the source documents as a table of executable checks: each numbered statement, what it says in plain notation, and a check that
// computes both of its sides. A row passes by computing, never by a stored verdict.
//
// A check writes its equation out, in loops over indices where that is how the source has it, and compares with what the packages under theory compute, with
// figures printed in the sources, and with kernels. What a kernel is held to is the tolerance of package oracle: the error that float32 arithmetic is
// entitled to on those very numbers. The ingredients of an equation (a sign, an index, a factor) are marked where they stand, and a test demands that the
// check fails with any of them changed: see Check.
//
// Kernels and the clock are arguments.
package equations

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"attnlab/attn"
	"attnlab/theory/bridge"
)

// A Row is one statement of the source documents. Rows that have neither Check nor Kernel say why in Is and Of.
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

// Verdicts. A kernel that does not do what a row asks has not claimed it, which is not the row's verdict.
const (
	Pass      Verdict = "pass"
	Fail      Verdict = "fail"
	Alias     Verdict = "alias"
	Prose     Verdict = "prose"
	Pending   Verdict = "pending"
	Unclaimed Verdict = "unclaimed"
)

// A Result is the verdict of one row: of its mathematics, where By is empty, of the definition, or of one kernel.
type Result struct {
	ID, Source, Statement string
	By                    string `json:",omitempty"`
	Verdict               Verdict
	Residual, Bound       float64   // of the fact that is closest to failing
	What                  string    `json:",omitempty"` // that fact
	Of                    []string  `json:",omitempty"`
	Why                   string    `json:",omitempty"` // of Fail and Unclaimed
	Facts                 []Fact    `json:",omitempty"`
	Errata                []Erratum `json:",omitempty"`
	Notes                 []string  `json:",omitempty"`
}

// Env is what checks are given.
type Env struct {
	Kernels []attn.Kernel
	Clock   func() time.Duration
}

// Run runs the given rows, in their order, and hands every result to each. It stops between results when the context ends.
func Run(ctx context.Context, env Env, rows []Row, each func(Result)) error {
	for i := range rows {
		if err := run(ctx, env, &rows[i], each); err != nil {
			return err
		}
	}
	return nil
}

func run(ctx context.Context, env Env, r *Row, each func(Result)) error {
	if !r.Computed() {
		each(Result{ID: r.ID, Source: r.Source(), Statement: r.Statement, Verdict: r.Is, Of: r.Of})
		return ctx.Err()
	}
	if r.Check != nil {
		each(r.result(newCheck(r.ID, env.Clock), "", r.Check))
	}
	if r.Kernel == nil {
		return ctx.Err()
	}
	all := []bridge.Attention{{}}
	for _, k := range env.Kernels {
		all = append(all, bridge.Through(k))
	}
	for _, a := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		each(r.result(newCheck(r.ID, env.Clock), a.Name(), func(c *Check) { r.Kernel(c, a) }))
	}
	return ctx.Err()
}

// result runs one check.
func (r *Row) result(c *Check, by string, f func(*Check)) Result {
	res := Result{ID: r.ID, Source: r.Source(), Statement: r.Statement, By: by, Verdict: Pass}
	if err := c.run(f); errors.Is(err, attn.ErrUnsupported) && by != "" {
		res.Verdict, res.Why = Unclaimed, err.Error()
		return res
	}
	res.Facts, res.Errata, res.Notes = c.facts, c.errata, c.notes
	if len(c.facts) == 0 {
		c.Fail("nothing was compared")
	}
	worst := slices.MaxFunc(c.facts, func(a, b Fact) int {
		if a.ratio() < b.ratio() {
			return -1
		}
		return 1
	})
	res.Residual, res.Bound, res.What = worst.Residual, worst.Bound, worst.What
	if !worst.Holds() {
		res.Verdict, res.Why = Fail, worst.What
	}
	return res
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

// Select returns the rows whose ID is one of ids, or begins with one that ends in *, and whose source is the one named. Empty selects all. It also returns
// the ids that no row has.
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
