package run_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"attnlab/harness/run"
	"attnlab/harness/run/runtest"
)

// TestReadSummary checks that rows read from sweep.csv are those it was written from, in a folder
// without a journal.
func TestReadSummary(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	r := runtest.Make(t, dir, runtest.Model{Edit: func(rec *run.Record) {
		if rec.Skip != nil {
			rec.Skip.Reason = "=a formula, \"quoted\"\nover two lines"
		}
	}})
	if err := os.Remove(filepath.Join(dir, run.JournalFile)); err != nil {
		t.Fatal(err)
	}
	got, err := run.ReadSummary(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got.Meta.Commit != r.Meta.Commit || got.Meta.Machine.CPU != r.Meta.Machine.CPU {
		t.Errorf("got commit %v of %q, want %v of %q", got.Meta.Commit, got.Meta.Machine.CPU, r.Meta.Commit, r.Meta.Machine.CPU)
	}
	var was, is bytes.Buffer
	if err := run.WriteCSV(&was, r.Rows()); err != nil {
		t.Fatal(err)
	}
	if err := run.WriteCSV(&is, got.Rows); err != nil {
		t.Fatal(err)
	}
	if was.String() != is.String() {
		t.Errorf("got\n%s\nwant\n%s", &is, &was)
	}
}

// TestReadOldCSV checks that a file without columns that came later is read, and that these are
// empty.
func TestReadOldCSV(t *testing.T) {
	rows, err := run.ReadCSV(strings.NewReader("kernel,isa,seq_kv,dim,ns_min\nflash,go,512,64,1e6\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := run.Point{Kernel: "flash", ISA: "go", SeqKV: 512, Dim: 64}.WithDefaults()
	if len(rows) != 1 || rows[0].Point != want || rows[0].NsMin != 1e6 || run.Known(rows[0].GFlops) || rows[0].Note != "" {
		t.Errorf("got %+v, want one row of %v", rows, want)
	}
}

// TestReadCSVErrors checks that each damage is refused, and that the error names what is wrong.
func TestReadCSVErrors(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	runtest.Make(t, dir, runtest.Model{Samples: 1})
	data, err := os.ReadFile(filepath.Join(dir, run.CSVFile))
	if err != nil {
		t.Fatal(err)
	}
	whole := string(data)
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "header"},
		{"another column", strings.Replace(whole, "ns_lo", "ns_low", 1), `column "ns_low" is unknown`},
		{"a column twice", strings.Replace(whole, "ns_lo", "ns_hi", 1), `column "ns_hi" is there twice`},
		{"a word for a number", strings.Replace(whole, "naive,go,softmax,forward,full,1,1", "naive,go,softmax,forward,full,1,one", 1), `row 1: heads_q: "one"`},
		{"no such mask", strings.Replace(whole, "naive,go,softmax,forward,full", "naive,go,softmax,forward,half", 1), "row 1: "},
		{"a field too few", strings.Replace(whole, "naive,go,softmax,", "naive,go,", 1), "wrong number of fields"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := run.ReadCSV(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
	if _, err := run.ReadSummary(t.TempDir()); err == nil {
		t.Error("an empty folder was read")
	}
}
