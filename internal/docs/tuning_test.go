package docs

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const tuningPage = "docs/tuning.md"

// lost counts, by section of docs/tuning.md, the figures without a run. Its numbers only fall: a
// new figure has its run, and a figure that is measured again leaves the list.
var lost = map[string]int{
	"backward-blocks":         4,
	"backward-items":          2,
	"constant-lines":          2,
	"copy-values":             8,
	"decode-queries":          4,
	"decode-rows":             4,
	"decode-runs":             12,
	"decode-splits":           1,
	"decode-tiles":            4,
	"decode-turns":            2,
	"dot-alone":               1,
	"dot-loads":               2,
	"elu-constants":           1,
	"first-tile":              1,
	"flash-blocks":            13,
	"flash-check":             2,
	"flash-next-keys":         3,
	"flash-steps":             2,
	"flash-sums":              3,
	"floored-weights":         3,
	"gate-all-samples":        1,
	"gate-undisturbed":        9,
	"joined-heads":            3,
	"key-vectors":             3,
	"large-pages":             2,
	"limit":                   2,
	"linear-chunk":            3,
	"mix-columns":             2,
	"neon":                    3,
	"next-values":             2,
	"one-cpu":                 2,
	"outer-results":           1,
	"outer-rows":              2,
	"outer-stream":            2,
	"packing":                 11,
	"portable":                2,
	"prefetch-copied":         1,
	"prefetch-hints":          2,
	"prefetch-own":            3,
	"prefetch-row":            2,
	"probe-chain":             1,
	"probe-pages":             1,
	"probe-time":              3,
	"process-for-each-sample": 4,
	"products":                6,
	"recurrence-columns":      2,
	"recurrence-fewest":       1,
	"recurrence-rows":         1,
	"recurrence-tokens":       1,
	"shared-cores":            8,
	"slot-readings":           2,
	"subnormal-weights":       2,
	"table":                   16,
	"team-patience":           1,
	"team-warm":               2,
	"vector-units":            5,
	"warm-again":              3,
	"weights-order":           2,
	"window-order":            1,
}

// A section of docs/tuning.md is about one constant, or a few that are chosen together.
type section struct {
	anchor string
	line   int
	intro  string // what trades against what
	tables []Block
}

// sections returns the sections of docs/tuning.md, and its table of machines by name.
func sections(t *testing.T) (list []section, machines map[string]string) {
	t.Helper()
	machines = map[string]string{}
	var in *section
	for _, b := range read(t, tuningPage) {
		switch {
		case b.Kind == Heading:
			if in = nil; b.Level == 3 {
				list = append(list, section{anchor: b.Anchor, line: b.Line})
				in = &list[len(list)-1]
			}
		case b.Kind == Table && in != nil:
			in.tables = append(in.tables, b)
		case b.Kind == Table && b.Header[0] == "name":
			for _, row := range b.Rows {
				machines[row[0]] = strings.Join(row, " | ")
			}
		case in != nil:
			in.intro += b.Text + "\n"
		}
	}
	if len(list) == 0 || len(machines) == 0 {
		t.Fatalf("%s: %d sections, %d machines, want some of both", tuningPage, len(list), len(machines))
	}
	return list, machines
}

var (
	tuningWord = regexp.MustCompile(`(?m)^\s*//\s*Tuning:.*$`)
	tuningLink = regexp.MustCompile(`^\s*// Tuning: docs/tuning\.md#([a-z0-9-]+)$`)
)

// TestTuningLinks checks that constants and sections of docs/tuning.md belong together: each link
// has its section, and each section is linked from a Go file that it names.
func TestTuningLinks(t *testing.T) {
	links := map[string][]string{} // files by anchor
	sources(t, func(name, text string) {
		for _, line := range tuningWord.FindAllString(text, -1) {
			m := tuningLink.FindStringSubmatch(line)
			if m == nil {
				t.Errorf("%s: got %q, want // Tuning: %s#ANCHOR on a line of its own", name, strings.TrimSpace(line), tuningPage)
				continue
			}
			links[m[1]] = append(links[m[1]], name)
		}
	})
	list, _ := sections(t)
	for _, s := range list {
		files := links[s.anchor]
		delete(links, s.anchor)
		switch {
		case len(files) == 0:
			t.Errorf("%s:%d: no Go file links to #%s: link it from the constant, or remove the section", tuningPage, s.line, s.anchor)
		case !slices.ContainsFunc(files, func(f string) bool { return strings.Contains(s.intro, "`"+f+"`") }):
			t.Errorf("%s:%d: section %s is linked from %v: name one of these files in its text, in backquotes", tuningPage, s.line, s.anchor, files)
		}
	}
	for _, a := range slices.Sorted(maps.Keys(links)) {
		t.Errorf("%v: link to #%s, which is no section of %s", links[a], a, tuningPage)
	}
}

// notKept is what the column "run" holds where a run is lost, with the commit that brought the
// figure, and where there was none.
var notKept = regexp.MustCompile(`^not (kept \(commit [0-9a-f]{7,40}\)|measured)$`)

// keptRun is what it holds otherwise: a link to the folder.
var keptRun = regexp.MustCompile(`^\[([^]]+)\]\(\.\./reports/history/([^)]+)\)$`)

// TestTuningFigures checks that each section of docs/tuning.md has one table of figures, each of a
// machine that the page knows, and each with its run. Those whose run is lost are listed in this
// file.
func TestTuningFigures(t *testing.T) {
	list, machines := sections(t)
	got := map[string]int{}
	for _, s := range list {
		if len(s.tables) != 1 || !slices.Equal(s.tables[0].Header, []string{"machine", "measured", "figure", "run"}) {
			t.Errorf("%s:%d: section %s has %d tables, want one with columns machine, measured, figure, run", tuningPage, s.line, s.anchor, len(s.tables))
			continue
		}
		for i, row := range s.tables[0].Rows {
			at := fmt.Sprintf("%s:%d: %s", tuningPage, s.tables[0].Line+2+i, s.anchor)
			if len(row) != 4 || slices.Contains(row, "") {
				t.Errorf("%s: got %q, want four cells, none empty", at, row)
				continue
			}
			cpuid, ok := machines[row[0]]
			if !ok {
				t.Errorf("%s: %q is not in the table of machines", at, row[0])
			}
			if notKept.MatchString(row[3]) {
				got[s.anchor]++
				continue
			}
			m := keptRun.FindStringSubmatch(row[3])
			if m == nil || m[1] != m[2] {
				t.Errorf("%s: got run %q, want [MACHINE/COMMIT/RUN](../reports/history/MACHINE/COMMIT/RUN), or not kept (commit X)", at, row[3])
				continue
			}
			if err := measuredOn(path.Join("reports/history", m[1]), cpuid); err != nil {
				t.Errorf("%s: %v", at, err)
			}
		}
	}
	for _, a := range slices.Sorted(maps.Keys(got)) {
		if got[a] > lost[a] {
			t.Errorf("%s: %s has %d figures without their run, want at most %d: measure them, and keep the run in reports/history", tuningPage, a, got[a], lost[a])
		}
	}
	for _, a := range slices.Sorted(maps.Keys(lost)) {
		if got[a] < lost[a] {
			t.Errorf("tuning_test.go: lost lists %d figures of %s without their run, and %s has %d: lower the number", lost[a], a, tuningPage, got[a])
		}
	}
}

// measuredOn checks that a folder, named relative to the module's root, is a committed run, or a
// comparison of two, of the CPU with the family and model in a row of the table of machines.
func measuredOn(dir, machine string) error {
	if runs := runsIn(os.DirFS(root), dir); len(runs) == 0 {
		return fmt.Errorf("%s holds no run: want run.json and sweep.csv in it, or in base and head below it", dir)
	} else {
		dir = runs[0]
	}
	text, err := os.ReadFile(filepath.Join(root, dir, "run.json"))
	if err != nil {
		return err
	}
	var meta struct{ Machine struct{ Family, Model int } }
	if err := json.Unmarshal(text, &meta); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if is := fmt.Sprintf("family %d, model %d", meta.Machine.Family, meta.Machine.Model); !strings.Contains(machine, is+" ") {
		return fmt.Errorf("%s was measured on a CPU of %s, the table of machines has %q", dir, is, machine)
	}
	return nil
}

// runsIn returns the folders of a run: its own, or those of both sides of a comparison.
func runsIn(files fs.FS, dir string) (runs []string) {
	holds := func(dir string) bool {
		_, meta := fs.Stat(files, path.Join(dir, "run.json"))
		_, rows := fs.Stat(files, path.Join(dir, "sweep.csv"))
		return meta == nil && rows == nil
	}
	if holds(dir) {
		return []string{dir}
	}
	if sides := []string{path.Join(dir, "base"), path.Join(dir, "head")}; holds(sides[0]) && holds(sides[1]) {
		return sides
	}
	return nil
}
