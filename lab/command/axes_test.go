package command

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attnlab/harness/run"
	"attnlab/internal/processtest"
)

// TestAnAxisIsARow checks that a row of the table of axes, with its field of Point, is all that an
// axis takes. It builds this package with the source of one more axis, and looks for the axis in
// the help, in errors, in the points of a grid, in sweep.csv, in bench.txt, and in what --resume
// keeps.
func TestAnAxisIsARow(t *testing.T) {
	processtest.Needed(t)
	if testing.Short() {
		t.Skip("builds this package")
	}
	benchrun := withAxis(t, "\tColour string `json:\"colour,omitempty\"`\n", `	{
		Column: "colour", Key: "colour", Optional: true, check: oneOf("red", "blue"),
		Flag: Flag{Name: "colour", Placeholder: "NAME", Help: "Colour of a point: red or blue."},
	},
`)
	dir := filepath.Join(t.TempDir(), "r")
	command := func(args ...string) (stdout, stderr string, code int) {
		var out, errs bytes.Buffer
		c := exec.Command(benchrun, args...)
		c.Env = append(os.Environ(), NoRaceSleep+"="+NoRaceSleepValue)
		c.Stdout, c.Stderr = &out, &errs
		if err := c.Run(); c.ProcessState == nil {
			t.Fatal(err)
		}
		return out.String(), errs.String(), c.ProcessState.ExitCode()
	}
	if help, _, _ := command("sweep", "--help"); !strings.Contains(help, "--colour=NAME,...") || !strings.Contains(help, "Colour of a point: red or blue.") {
		t.Errorf("no --colour in the help of sweep:\n%s", help)
	}
	if _, text, code := command("sweep", "--colour=green"); code != exitUsage || text != "benchrun: --colour green: one of red, blue\n" {
		t.Errorf("--colour green: got exit code %d, %s", code, text)
	}
	if _, text, code := command("sweep", "--kernel=naive", "--isa=go", "--mask=full", "--seq=8", "--dim=4", "--colour=,red", "--samples=1", "-o", dir); code != 0 {
		t.Fatalf("sweep: got exit code %d, %s", code, text)
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	lines, err := csv.NewReader(strings.NewReader(read(run.CSVFile))).ReadAll()
	if err != nil || len(lines) != 3 {
		t.Fatalf("%s: got %d lines, %v, want a header and 2 points", run.CSVFile, len(lines), err)
	}
	at := slices.Index(lines[0], "colour")
	if want := slices.Index(lines[0], "heads_v") + 1; at != want {
		t.Fatalf("column colour of %v: got %d, want %d", lines[0], at, want)
	}
	if got := lines[1][at] + "," + lines[2][at]; got != ",red" {
		t.Errorf("colours of the points: got %s, want ,red", got)
	}
	const name = "naive/isa=go/pass=forward/mask=full/heads=1/seq=8/dim=4/threads=1"
	if bench := read(run.BenchFile); !strings.Contains(bench, name+" ") || !strings.Contains(bench, name+"/colour=red ") {
		t.Errorf("want %s, plain and with /colour=red, in\n%s", name, bench)
	}
	if journal := read(run.JournalFile); strings.Count(journal, `"colour"`) != 1 || !strings.Contains(journal, `"colour":"red"`) {
		t.Errorf("want one colour, red, in\n%s", journal)
	}
	if _, text, code := command("sweep", "--resume", "--colour=blue", "-o", dir); code != exitUsage || !strings.Contains(text, "--colour is blue, but the run in") {
		t.Errorf("--resume with another colour: got exit code %d, %s", code, text)
	}
}

// withAxis builds this package with a field more in run.Point and a row more in the table of axes,
// and returns the command.
func withAxis(t *testing.T, field, row string) string {
	t.Helper()
	path, err := filepath.Abs("../../harness/run/axes.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	source := string(text)
	for _, add := range []struct{ before, text string }{
		{"}\n\n// axes is the table", field},
		{"})\n\n// keys is the same", row},
	} {
		if strings.Count(source, add.before) != 1 {
			t.Fatalf("%s: want %q once", path, add.before)
		}
		source = strings.Replace(source, add.before, add.text+add.before, 1)
	}
	dir := t.TempDir()
	changed, overlay, program := filepath.Join(dir, "axes.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "benchrun")
	files, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{changed: []byte(source), overlay: files} {
		if err := os.WriteFile(name, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// TestMain makes a test program with this name the command, with short measurements.
	if out, err := exec.Command("go", "test", "-c", "-overlay="+overlay, "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	return program
}

// TestAxesTable checks that docs/commands.md has the table of axes. With -update it writes the
// table.
func TestAxesTable(t *testing.T) {
	const path, begin, end = "../../docs/commands.md", "<!-- axes -->\n", "<!-- end axes -->\n"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	old, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no %q with %q behind it", path, begin, end)
	}
	switch table := axesTable(); {
	case old == table:
	case *update:
		if err := os.WriteFile(path, []byte(before+begin+table+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s: got\n%swant\n%srun go test ./lab/command -run AxesTable -update", path, old, table)
	}
}

// axesTable returns the table of axes for the documentation.
func axesTable() string {
	var b strings.Builder
	b.WriteString("\n| flag | values, default in parentheses | column of sweep.csv | key in names |\n|---|---|---|---|\n")
	for _, a := range run.Axes() {
		flag, help := "none", "The kind of attention, which the kernel decides."
		if a.Flag.Name != "" {
			flag, help = "`--"+a.Flag.Name+"`", strings.ReplaceAll(a.Flag.Help, "${default}", a.Flag.Default)
		}
		fmt.Fprintf(&b, "| %s | %s | `%s` | `%s` |\n", flag, strings.ReplaceAll(help, "|", `\|`), a.Column, a.Key)
	}
	b.WriteString("\nThe table is written by `go test ./lab/command -run AxesTable -update`.\n\n")
	return b.String()
}
