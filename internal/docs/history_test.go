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
	"testing/fstest"
)

const history = "reports/history"

var (
	folderName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*$`)
	commitName = regexp.MustCompile(`^[0-9a-f]{7,40}$`)
)

// misplaced returns what is wrong with a folder of committed runs, and the number of its runs. The
// folder's README.md gives its layout.
func misplaced(files fs.FS) (faults []string, runs int) {
	fault := func(format string, a ...any) { faults = append(faults, fmt.Sprintf(format, a...)) }
	for _, machine := range list(files, ".", fault, "README.md") {
		var journals []string
		if !folderName.MatchString(machine) {
			fault("%s: got machine %q, want lower-case letters, digits and hyphens", machine, machine)
		}
		for _, commit := range list(files, machine, fault) {
			dir := path.Join(machine, commit)
			if !commitName.MatchString(commit) {
				fault("%s: got commit %q, want seven or more hexadecimal digits", dir, commit)
			}
			folders := list(files, dir, fault, "run.json", "sweep.csv", "journal.jsonl", "*.md")
			holds := []string{dir}
			for _, r := range folders {
				at := path.Join(dir, r)
				if !folderName.MatchString(r) {
					fault("%s: got run %q, want lower-case letters, digits and hyphens", at, r)
				}
				sides := list(files, at, fault, "run.json", "sweep.csv", "journal.jsonl", "ab.json", "head.patch")
				switch {
				case len(sides) == 0:
					holds = append(holds, at)
				case slices.Equal(sides, []string{"base", "head"}):
					for _, side := range sides {
						list(files, path.Join(at, side), fault, "run.json", "sweep.csv")
						holds = append(holds, path.Join(at, side))
					}
				default:
					fault("%s: got folders %v, want none, or base and head of a comparison", at, sides)
				}
			}
			for _, at := range holds {
				has := func(name string) bool {
					_, err := fs.Stat(files, path.Join(at, name))
					return err == nil
				}
				switch meta, rows, journal := has("run.json"), has("sweep.csv"), has("journal.jsonl"); {
				case !meta && !rows && !journal && at == dir:
					continue // notes, or runs in folders of their own
				case !meta || !rows:
					fault("%s: got run.json %v, sweep.csv %v, want both", at, meta, rows)
					continue
				case journal:
					journals = append(journals, at)
				}
				runs++
				if err := ofCommit(files, at, commit); err != nil {
					fault("%v", err)
				}
			}
		}
		if len(journals) > 1 {
			fault("%s: got the journals of %v, want that of the newest baseline alone", machine, journals)
		}
	}
	return faults, runs
}

// list returns the folders in a folder. It calls fault for each file that matches no pattern.
func list(files fs.FS, dir string, fault func(string, ...any), may ...string) (folders []string) {
	entries, err := fs.ReadDir(files, dir)
	if err != nil {
		fault("%v", err)
	}
	for _, e := range entries {
		matches := func(pattern string) bool { ok, _ := path.Match(pattern, e.Name()); return ok }
		switch {
		case e.IsDir():
			folders = append(folders, e.Name())
		case !slices.ContainsFunc(may, matches):
			fault("%s: want only %v here, and folders", path.Join(dir, e.Name()), may)
		}
	}
	return folders
}

// ofCommit checks that a run has the commit that its folder names. A run without a commit passes.
func ofCommit(files fs.FS, dir, commit string) error {
	text, err := fs.ReadFile(files, path.Join(dir, "run.json"))
	if err != nil {
		return err
	}
	var meta struct{ Commit struct{ Revision string } }
	if err := json.Unmarshal(text, &meta); err != nil {
		return fmt.Errorf("%s/run.json: %w", dir, err)
	}
	if r := meta.Commit.Revision; r != "" && !strings.HasPrefix(r, commit) {
		return fmt.Errorf("%s: run.json has commit %s, want the one that the folder names", dir, r)
	}
	return nil
}

// TestHistory checks the layout of the committed runs.
func TestHistory(t *testing.T) {
	faults, runs := misplaced(os.DirFS(filepath.Join(root, history)))
	for _, f := range faults {
		t.Errorf("%s/%s", history, f)
	}
	if runs == 0 {
		t.Errorf("%s: no runs in it", history)
	}
}

// TestMisplaced checks that each departure from the layout is reported.
func TestMisplaced(t *testing.T) {
	meta := `{"commit": {"revision": "0123456789abcdef0123456789abcdef01234567"}}`
	right := map[string]string{
		"README.md":                           "",
		"zen9-2cpu/0123456/run.json":          meta,
		"zen9-2cpu/0123456/sweep.csv":         "",
		"zen9-2cpu/0123456/journal.jsonl":     "",
		"zen9-2cpu/01234567/night/run.json":   `{"commit": {}}`,
		"zen9-2cpu/01234567/night/sweep.csv":  "",
		"zen9-2cpu/0123456/ab/base/run.json":  meta,
		"zen9-2cpu/0123456/ab/base/sweep.csv": "",
		"zen9-2cpu/0123456/ab/head/run.json":  meta,
		"zen9-2cpu/0123456/ab/head/sweep.csv": "",
		"zen9-2cpu/0123456/ab/ab.json":        "",
		"zen9-2cpu/0123456/ab/head.patch":     "",
		"zen9-2cpu/abcdef0/rates.md":          "",
	}
	for _, c := range []struct {
		name, file, text string // a file that is added, or taken away if its text is "-"
		want             string
	}{
		{"the layout", "README.md", "", ""},
		{"a file beside machines", "notes.txt", "", "notes.txt: want only"},
		{"a file beside commits", "zen9-2cpu/notes.md", "", "zen9-2cpu/notes.md: want only"},
		{"a report", "zen9-2cpu/0123456/report.html", "", "report.html: want only"},
		{"a machine in capitals", "Zen9/0123456/rates.md", "", `machine "Zen9"`},
		{"a run in capitals", "zen9-2cpu/0123456/Night/notes.md", "", `run "Night"`},
		{"a name for a commit", "zen9-2cpu/newest/rates.md", "", `commit "newest"`},
		{"no rows", "zen9-2cpu/0123456/sweep.csv", "-", "zen9-2cpu/0123456: got run.json true, sweep.csv false"},
		{"no machine", "zen9-2cpu/01234567/night/run.json", "-", "night: got run.json false, sweep.csv true"},
		{"an empty run", "zen9-2cpu/01234567/night/journal.jsonl", "", "got the journals of"},
		{"one side", "zen9-2cpu/0123456/ab/head/run.json", "-", "head: got run.json false, sweep.csv true"},
		{"another commit", "zen9-2cpu/0123456/run.json", `{"commit": {"revision": "fedcba9"}}`, "run.json has commit fedcba9"},
		{"too deep", "zen9-2cpu/01234567/night/later/run.json", meta, "got folders [later]"},
		{"damaged", "zen9-2cpu/0123456/run.json", "{", "run.json: unexpected end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := fstest.MapFS{}
			for name, text := range maps.All(right) {
				files[name] = &fstest.MapFile{Data: []byte(text)}
			}
			if files[c.file] = (&fstest.MapFile{Data: []byte(c.text)}); c.text == "-" {
				delete(files, c.file)
			}
			faults, runs := misplaced(files)
			if c.want == "" {
				if len(faults) != 0 || runs != 4 {
					t.Errorf("got %q and %d runs, want none and 4", faults, runs)
				}
				return
			}
			if !slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, c.want) }) {
				t.Errorf("got %q, want a fault with %q", faults, c.want)
			}
		})
	}
}
