package attntest_test

import (
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/attn/oracle"
)

// TestOperations checks that every operation is in three tables: that of package attn, that of
// definitions and gradients in package oracle, and that of families in package cases. Some of its
// cases must be in the core.
func TestOperations(t *testing.T) {
	for _, op := range attn.Ops() {
		if named, err := attn.OpByName(op.String()); err != nil || named != op {
			t.Fatalf("op %d is called %q, which is op %d: %v", op, op, named, err)
		}
		p := attn.Problem{Op: op, Batch: 1, SeqQ: 3, SeqKV: 3, HeadsQ: 1, HeadsKV: 1, Dim: 4, DimV: 4, Want: attn.WantGrad}
		if err := p.Validate(); err != nil {
			t.Errorf("%v: a plain problem: %v", op, err)
		}
		if n := p.Count(nil).Flop; n <= 0 {
			t.Errorf("%v: a plain problem takes %d operations", op, n)
		}
		c := cases.Case{Family: "operations", Name: op.String(), Problem: p, Layout: "bhsd", Data: "normal"}
		a, _, err := c.Args()
		if err != nil {
			t.Fatal(err)
		}
		o, err := oracle.New(p, a)
		if err != nil {
			t.Errorf("%v: %v", op, err)
			continue
		}
		if r := o.Row(oracle.Index{}); r.Visible != 3 || r.TolOut[0] <= 0 {
			t.Errorf("%v: a row sees %d keys, and its tolerance is %v", op, r.Visible, r.TolOut)
		}
		g, err := cases.NewGrads(p, a, "bhsd", nil)
		if err != nil {
			t.Fatal(err)
		}
		cases.FillGrads(g, 1)
		seen := map[string]bool{}
		_, err = o.EachGrad(g, func(name string, _ oracle.Index, _ []float32, _, tol []float64) {
			seen[name] = seen[name] || tol[0] > 0
		})
		if err != nil || !seen["dQ"] || !seen["dK"] || !seen["dV"] {
			t.Errorf("%v: gradients with a tolerance: %v, want dQ, dK and dV: %v", op, seen, err)
		}
		all, core := cases.Of(op), 0
		for _, c := range all {
			if c.Core {
				core++
			}
		}
		if core == 0 {
			t.Errorf("%v: %d cases, of which %d are in the core, want some", op, len(all), core)
		}
	}
}
