package command

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"attnlab/harness/compare"
	"attnlab/harness/run"
	"attnlab/harness/run/runtest"
)

// call runs one command line and returns its exit code and what it wrote.
func call(args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = benchrun(args, streams{&o, &e}, Lab{})
	return code, o.String(), e.String()
}

// TestCompareExitCodes checks the exit code and the words of each outcome of compare.
func TestCompareExitCodes(t *testing.T) {
	dir := t.TempDir()
	folder := func(name string, m runtest.Model) string {
		path := filepath.Join(dir, name)
		runtest.Make(t, path, m)
		return path
	}
	base := folder("base", runtest.Model{Seed: 1})
	again := folder("again", runtest.Model{Seed: 2})
	slow := folder("slow", runtest.Model{Seed: 3, Slower: func(p run.Point) float64 {
		if p.Kernel == "flash" {
			return 1.2
		}
		return 1
	}})
	short := folder("short", runtest.Model{Seed: 4, Samples: 2})
	damaged := folder("damaged", runtest.Model{Samples: 1})
	if err := os.WriteFile(filepath.Join(damaged, run.JournalFile), []byte("{\"plan\":\nnull}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	bench := func(path string) string { return filepath.Join(path, run.BenchFile) }
	for _, c := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"a run with itself", []string{base, base}, 0, "nothing regressed"},
		{"the same kernels again", []string{base, again}, 0, "nothing regressed"},
		{"slower", []string{base, slow}, 1, "slower"},
		{"files", []string{bench(base), bench(slow)}, 1, "slower"},
		{"faster", []string{slow, base}, 0, "faster"},
		{"too few", []string{base, short, "--alpha=0.01"}, 2, "not enough samples"},
		{"a greater effect asked for", []string{base, slow, "--effect=0.3"}, 0, "nothing regressed"},
		{"filtered away", []string{base, slow, "--filter=/kernel:naive"}, 0, "nothing regressed"},
		{"json", []string{base, slow, "--json"}, 1, `"verdict": "regressed"`},
		{"absent", []string{base, filepath.Join(dir, "absent")}, 4, "no such file"},
		{"damaged", []string{base, damaged}, 4, run.JournalFile + ":1: damaged"},
		{"nothing left", []string{base, base, "--filter=/kernel:other"}, 4, "no benchmark in common"},
		{"a bad filter", []string{base, base, "--filter=(("}, 4, "filter"},
		{"a bad level", []string{base, base, "--alpha=2"}, 4, "alpha is 2"},
		{"a word for a number", []string{base, base, "--effect=much"}, 4, "--effect"},
		{"one run", []string{base}, 4, "<b>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, errs := call(append([]string{"compare"}, c.args...)...)
			if code != c.code || !strings.Contains(out+errs, c.want) {
				t.Errorf("exit %d, want %d, and %q in\n%s%s", code, c.code, c.want, out, errs)
			}
			if code == 4 && (out != "" || strings.Count(errs, "\n") != 1) {
				t.Errorf("want one line on standard error, got\n%s%s", out, errs)
			}
			if c.name == "json" && !json.Valid([]byte(out)) {
				t.Errorf("no JSON:\n%s", out)
			}
		})
	}
}

// TestCompareDefaults checks that the flags have the defaults of package compare.
func TestCompareDefaults(t *testing.T) {
	c, _, err := parse([]string{"compare", "a", "b"}, streams{})
	if err != nil {
		t.Fatal(err)
	}
	if got := (compare.Options{Alpha: c.Compare.Alpha, Effect: c.Compare.Effect}); got != compare.DefaultOptions {
		t.Errorf("got %+v, want %+v", got, compare.DefaultOptions)
	}
}

// TestReportCommand checks which files report writes, and how its flags read.
func TestReportCommand(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: draws charts, which package reports tests too")
	}
	dir := t.TempDir()
	t.Chdir(dir)
	runtest.Make(t, "run", runtest.Model{Samples: 1, Masks: []string{"full"}})
	if err := os.Remove(filepath.Join("run", run.CSVFile)); err != nil {
		t.Fatal(err)
	}
	const marks = "# Lab\n<!-- ladder-chart: old -->\n<!-- end -->\n"
	for _, path := range []string{"README.md", "other.md"} {
		if err := os.WriteFile(path, []byte(marks), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	changed := func(path string) bool {
		t.Helper()
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		was := string(data) != marks
		if err := os.WriteFile(path, []byte(marks), 0o644); err != nil {
			t.Fatal(err)
		}
		return was
	}
	for _, c := range []struct {
		args         []string
		code         int
		want         string
		readme, file bool // which of the two was rewritten
	}{
		{[]string{"run"}, 0, "report.md", false, false},
		{[]string{"run", "--readme"}, 0, "README.md", true, false},
		{[]string{"--readme", "run"}, 0, "README.md", true, false},
		{[]string{"run", "--readme", "other.md"}, 0, "other.md", false, true},
		{[]string{"run", "--readme=other.md"}, 0, "other.md", false, true},
		{[]string{"run", "--readme=absent.md"}, 4, "absent.md", false, false},
		{[]string{"run", "--serve=0.0.0.0:80"}, 4, "not an address of this machine alone", false, false},
		{[]string{"run", "--serve", "--readme"}, 4, "can't be used together", false, false},
		{[]string{"absent"}, 4, "not a run folder", false, false},
		{nil, 4, "<run>", false, false},
	} {
		code, out, errs := call(append([]string{"report"}, c.args...)...)
		if code != c.code || !strings.Contains(out+errs, c.want) {
			t.Errorf("report %q: exit %d, want %d, and %q in\n%s%s", c.args, code, c.code, c.want, out, errs)
		}
		if readme, file := changed("README.md"), changed("other.md"); readme != c.readme || file != c.file {
			t.Errorf("report %q: README.md rewritten: %v, other.md: %v", c.args, readme, file)
		}
	}
	for _, path := range []string{"report.md", run.CSVFile, run.BenchFile, "plots/forward-full-heads1-dim64-threads1-time.svg"} {
		if _, err := os.Stat(filepath.Join("run", path)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat("docs/ladder.svg"); err != nil {
		t.Error(err)
	}
}
