package verify_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/harness/harnesstest"
	"attnlab/harness/verify"
)

// A fakeWorker finds what its function says, and keeps the cases that it was asked for.
type fakeWorker struct {
	find  func(algo string, n int) (verify.Finding, error) // n counts from 1
	asked []string
}

func (w *fakeWorker) Try(_ context.Context, algo, isa string, c cases.Case) (verify.Finding, error) {
	w.asked = append(w.asked, algo+" "+c.Name)
	f, err := w.find(algo, len(w.asked))
	f.Kernel, f.ISA, f.Family, f.Case = algo, isa, c.Family, c.Name
	return f, err
}

func (w *fakeWorker) TryOutside(_ context.Context, algo, isa, _ string, o *cases.Outside) (verify.Finding, error) {
	w.asked = append(w.asked, algo+" "+o.Name)
	f, err := w.find(algo, len(w.asked))
	f.Kernel, f.ISA, f.Family, f.Case = algo, isa, o.File, o.Name
	return f, err
}

func list() []cases.Case {
	return []cases.Case{{Family: "one", Name: "a"}, {Family: "one", Name: "b"}, {Family: "two", Name: "c"}}
}

func named(names ...string) (list []attn.Kernel) {
	for _, n := range names {
		list = append(list, harnesstest.Odd{Algo: n})
	}
	return list
}

// TestCases checks the table of right and wrong answers and of refusals, and that a kernel that is
// late is given up.
func TestCases(t *testing.T) {
	w := &fakeWorker{find: func(algo string, n int) (verify.Finding, error) {
		switch {
		case algo == "late":
			return verify.Finding{Late: true}.Broken(errors.New("no answer within 1s")), nil
		case algo == "wrong" && n%3 == 2:
			return verify.Finding{Worst: 7, Note: "Out[here]"}, nil
		case n%3 == 0:
			return verify.Finding{Refused: true}, nil
		}
		return verify.Finding{Worst: 0.25}, nil
	}}
	table, err := verify.Cases(t.Context(), nil, w, named("right", "wrong", "late"), list())
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"right a", "right b", "right c", "wrong a", "wrong b", "wrong c", "late a"}; !slices.Equal(w.asked, want) {
		t.Errorf("tried %v, want %v", w.asked, want)
	}
	if table.Tried != 5 || table.Wrong != 2 {
		t.Errorf("%d answers, %d wrong; want 5 and 2", table.Tried, table.Wrong)
	}
	var out strings.Builder
	if err := table.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	const want = `   err/tol    one  two
  right/go   0.25    -
  wrong/go  WRONG    -
   late/go  WRONG    -
wrong in 1 of 2 one cases, worst: wrong/go on one/b: 7 times the tolerance: Out[here]
wrong in 1 of 1 one cases, worst: late/go on one/a: no answer within 1s
3 kernels, 5 calls compared with the definition, 2 wrong
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// TestCasesEnd checks that cases end where they are stopped or cancelled, with the table so far,
// and where the worker fails, with its error.
func TestCasesEnd(t *testing.T) {
	stop := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	broken := errors.New("cannot start")
	for _, test := range []struct {
		name string
		at   func() error // what happens in the second case
		want error
		text string
	}{
		{"stopped", func() error { close(stop); return nil }, verify.ErrInterrupted, "interrupted at right/go: the table is of what was tried before"},
		{"cancelled", func() error { cancel(); return ctx.Err() }, verify.ErrInterrupted, "interrupted at right/go: the table is of what was tried before"},
		{"no worker", func() error { return broken }, broken, "cannot start"},
	} {
		of, end := context.Context(t.Context()), (<-chan struct{})(nil)
		switch test.name {
		case "stopped":
			end = stop
		case "cancelled":
			of = ctx
		}
		w := &fakeWorker{find: func(_ string, n int) (verify.Finding, error) {
			if n == 2 {
				return verify.Finding{}, test.at()
			}
			return verify.Finding{}, nil
		}}
		table, err := verify.Cases(of, end, w, named("right"), list())
		if !errors.Is(err, test.want) || err.Error() != test.text || len(w.asked) != 2 {
			t.Errorf("%s: got %v after %v; want %q after two cases", test.name, err, w.asked, test.text)
		}
		if (table != nil) != errors.Is(err, verify.ErrInterrupted) {
			t.Errorf("%s: got the table %v", test.name, table)
		}
	}
}

// TestOutside checks that a report accounts for every case: passed, wrong, refused by each kernel,
// not supported at all, or a normalisation.
func TestOutside(t *testing.T) {
	l := verify.Outside{
		List: []cases.Outside{{File: "f", Name: "good"}, {File: "f", Name: "bad"}, {File: "f", Name: "hard"}, {File: "f", Name: "odd", Lacks: "int4"}, {File: "f", Name: "norm", Norm: new(cases.Norm)}},
		Norms: []func(*cases.Outside) verify.Finding{func(o *cases.Outside) verify.Finding {
			return verify.Finding{Kernel: "nn", ISA: "go", Family: o.File, Case: o.Name, Worst: 0.5}
		}},
	}
	w := &fakeWorker{find: func(_ string, n int) (verify.Finding, error) {
		switch n {
		case 1:
			return verify.Finding{Worst: 0.25, Excused: "lse"}, nil
		case 2:
			return verify.Finding{Worst: 3, Note: "Out[here]"}, nil
		}
		return verify.Finding{Refused: true, Note: fmt.Sprintf("hard: %v: a window", attn.ErrUnsupported)}, nil
	}}
	r, err := l.Run(t.Context(), nil, w, named("flash"))
	if err != nil || len(r.Wrong) != 1 || r.Wrong[0].Case != "bad" {
		t.Fatalf("wrong %v, %v; want bad alone", r.Wrong, err)
	}
	var out strings.Builder
	if err := r.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	const want = `
outside cases
    flash/go  1 pass, worst err/tol 0.25; 1 wrong; 1 refused
       nn/go  1 pass, worst err/tol 0.50; 0 wrong; 0 refused
flash/go does not write lse, which is not compared (1): good
unsupported: needs int4 (1): odd
unsupported: needs what none of these kernels does: a window (1): hard
wrong: flash/go on f/bad: 3 times the tolerance: Out[here]
5 outside cases: 2 pass, 1 answered wrongly, 2 unsupported
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	l.List, l.Norms = l.List[4:], nil
	if r, err = l.Run(t.Context(), nil, w, named("flash")); err != nil || r.WriteText(&out) != nil || !strings.Contains(out.String(), "unsupported: needs layers (1): norm\n") {
		t.Errorf("without layers: %v, %s", err, out.String())
	}
	stop := make(chan struct{})
	close(stop)
	l.List = []cases.Outside{{File: "f", Name: "good"}}
	if _, err := l.Run(t.Context(), stop, w, named("flash")); !errors.Is(err, verify.ErrInterrupted) || err.Error() != "interrupted at flash/go" {
		t.Errorf("stopped: %v", err)
	}
}
