package reports

import (
	"fmt"
	"slices"
	"testing"

	"attnlab/harness/run"
)

// TestNotes checks that a note of a few rows names them, and that a note of many appears once.
func TestNotes(t *testing.T) {
	var rows []run.Row
	for i := range named + 1 {
		at := run.Point{Kernel: "flash", ISA: "go", SeqKV: 64 + i, Dim: 8}.WithDefaults()
		rows = append(rows, run.Row{Point: at, Status: run.OK, Note: "often"})
		if i < 2 {
			rows = append(rows, run.Row{Point: at, Status: run.OK, Note: "twice"}, run.Row{Point: at, Status: run.Skipped, Note: "often"})
		}
	}
	series := "flash go, forward, full mask, one head, d = 8, one thread, seq 64"
	want := []note{{"note", fmt.Sprintf("%d points", named+1), "often"}, {"note", series + ", 65", "twice"}, {run.Skipped, series + ", 65", "often"}}
	if got := notes(rows); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
