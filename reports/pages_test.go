package reports

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"attnlab/harness/run"
	"attnlab/harness/run/runtest"
)

// TestPages checks that each generated block of README.md and docs/*.md, and each picture that one
// shows, is what the committed runs give. -update rewrites them.
func TestPages(t *testing.T) {
	const root = ".."
	names := []string{"README.md"}
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range docs {
		names = append(names, path.Join("docs", filepath.Base(doc)))
	}
	for _, name := range names {
		files, err := Page(root, name)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, f := range files {
			// Other architectures fuse multiplications and additions: the last digits of
			// coordinates differ.
			if strings.HasSuffix(f.Name, ".svg") && runtime.GOARCH != "amd64" {
				continue
			}
			was, err := os.ReadFile(filepath.Join(root, f.Name))
			if err == nil && bytes.Equal(was, f.Data) {
				continue
			}
			if *update {
				if err := f.Write(root); err != nil {
					t.Error(err)
				}
				continue
			}
			t.Errorf("%s is not what its runs give (%v): go test ./reports -run Pages -update rewrites it", f.Name, err)
		}
	}
}

// toyRoot returns a folder with two runs for each kind of block: model is of kernels beside another
// program, on one and two threads, and costly has features.
func toyRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	runtest.Make(t, filepath.Join(root, "runs/model"), runtest.Model{
		Threads: []int{1, 2}, Masks: []string{"full"},
		Meta: func(m *run.Meta) {
			m.Peers = map[string]string{"flash": "Other 1.2, fused"}
			m.Machine.Family, m.Machine.Model = 6, 207
			m.Command = []string{"/tmp/benchrun", "sweep", "--peer", "flash=/opt/other --key=secret", "--threads", "1,2", "-o", "runs/model"}
		},
	})
	runtest.Make(t, filepath.Join(root, "runs/alone"), runtest.Model{Dims: []int{128}, Masks: []string{"full"}})
	costly := costlyRun(t)
	if err := costly.Write(); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(root, "runs/costly"), os.DirFS(costly.Dir)); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"model", "alone", "costly"} {
		if err := os.Remove(filepath.Join(root, "runs", dir, run.JournalFile)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func put(t *testing.T, root, name, text string) {
	t.Helper()
	if err := (File{name, []byte(text)}).Write(root); err != nil {
		t.Fatal(err)
	}
}

// TestBlocks checks what each kind of block holds, in a page of a folder, and that a page that was
// written stays as it is.
func TestBlocks(t *testing.T) {
	root := toyRoot(t)
	var page strings.Builder
	page.WriteString("# Blocks\n\nText.\n")
	for i := range kinds {
		folder := map[string]string{"features": "runs/costly", "ladder": "runs/alone", "ladder-chart": "runs/alone"}[kinds[i].name]
		if folder == "" {
			folder = "runs/model"
		}
		page.WriteString("\n<!-- " + kinds[i].name + ":  " + folder + "  -->\nold\n<!-- end -->\n")
	}
	page.WriteString("\n<!-- times: runs/alone runs/costly -->\n<!-- end -->\nMore text.\n")
	put(t, root, "docs/blocks.md", page.String())
	for range 2 {
		files, err := Page(root, "docs/blocks.md")
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range files {
			names = append(names, f.Name)
			if strings.HasSuffix(f.Name, ".svg") && !bytes.Contains(f.Data, []byte("</svg>")) {
				t.Errorf("%s is no whole picture", f.Name)
			}
			if err := f.Write(root); err != nil {
				t.Fatal(err)
			}
		}
		if want := []string{"docs/blocks.md", "docs/ladder.svg", "docs/beside.svg"}; !slices.Equal(names, want) {
			t.Errorf("got files %q, want %q", names, want)
		}
		golden(t, "blocks.md", files[0].Data)
	}
}

// TestPageErrors checks that a page is refused where a block is not as it must be, and that the
// error names the line and what to do.
func TestPageErrors(t *testing.T) {
	root := toyRoot(t)
	for _, c := range []struct{ name, text, want string }{
		{"no end", "text\n<!-- times: runs/model -->\n", "line 2: the block has no end"},
		{"no begin", "<!-- end -->\n", "line 1: <!-- end --> without a block"},
		{"nested", "<!-- times: runs/model -->\n<!-- ladder: runs/model -->\n<!-- end -->\n", "line 2: a block begins inside that of line 1"},
		{"no such kind", "<!-- time: runs/model -->\n<!-- end -->\n", "no such block: write one of ladder,"},
		{"no folder", "<!-- times: -->\n<!-- end -->\n", "names no run"},
		{"no such folder", "\n\n<!-- times: runs/absent -->\n<!-- end -->\n", "line 3: times: not a run folder"},
		{"twice the same", "<!-- times: runs/alone runs/alone -->\n<!-- end -->\n", "two of the runs measured"},
		{"no peer", "<!-- beside: runs/alone -->\n<!-- end -->\n", "--peer NAME=COMMAND"},
		{"no peer to hold against", "<!-- ratios: runs/alone -->\n<!-- end -->\n", "--peer NAME=COMMAND"},
		{"no naive", "<!-- ladder: runs/costly -->\n<!-- end -->\n", "begins at naive"},
		{"two ladders", "<!-- ladder: runs/alone runs/model -->\n<!-- end -->\n", "one folder"},
		{"one thread", "<!-- threads: runs/alone -->\n<!-- end -->\n", "--threads 1,2"},
		{"no features", "<!-- features: runs/alone -->\n<!-- end -->\n", "--with ,FEATURE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			put(t, root, "page.md", c.text)
			if _, err := Page(root, "page.md"); err == nil || !strings.Contains(err.Error(), "page.md: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
	if _, err := Page(root, "absent.md"); err == nil {
		t.Error("a page that is not there has no error")
	}
}

// TestREADME checks that a run takes over the blocks that it can fill, with their pictures, and
// leaves the others alone.
func TestREADME(t *testing.T) {
	root := toyRoot(t)
	r := runtest.Make(t, filepath.Join(root, "runs/new"), runtest.Model{})
	const others = "\n<!-- beside: runs/model -->\nbars\n<!-- end -->\n\n<!-- times: runs/alone runs/costly -->\ntimes\n<!-- end -->\nmore\n"
	put(t, root, "README.md", "# Lab\n\n<!-- ladder: runs/alone -->\nold\n<!-- end -->\n"+others)
	file := filepath.Join(root, "README.md")
	if err := README(file, r); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(got); !strings.Contains(text, "# Lab\n\n<!-- ladder: runs/new -->\n| kernel |") || !strings.Contains(text, "[new](runs/new)") || !strings.HasSuffix(text, "<!-- end -->\n"+others) {
		t.Errorf("got\n%s", text)
	}
	if _, err := Page(root, "README.md"); err != nil {
		t.Error(err)
	}

	put(t, root, "README.md", "<!-- ladder-chart: runs/alone -->\n<!-- end -->\n")
	if err := README(file, r); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "docs/ladder.svg")); err != nil {
		t.Error(err)
	}
}

// TestREADMEErrors checks that a README that the run cannot fill is left as it is.
func TestREADMEErrors(t *testing.T) {
	root := t.TempDir()
	r := runtest.Make(t, filepath.Join(root, "run"), runtest.Model{Samples: 1})
	file := filepath.Join(root, "README.md")
	for _, c := range []struct{ name, text, want string }{
		{"no blocks", "# Lab\n", "no block to fill: put <!-- ladder: run -->"},
		{"none that fits", "<!-- beside: x -->\n<!-- end -->\n", "beside: this table needs"},
		{"of two runs", "<!-- times: x y -->\n<!-- end -->\n", "times is made from 2 runs"},
		{"no end", "<!-- ladder: x -->\n", "no end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			put(t, root, "README.md", c.text)
			if err := README(file, r); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
			if got, err := os.ReadFile(file); err != nil || string(got) != c.text {
				t.Errorf("the file changed: %q, %v", got, err)
			}
		})
	}
	if err := README(filepath.Join(root, "absent.md"), r); err == nil {
		t.Error("no README, no error")
	}
}

// TestWrap checks that lines are as long as they may be, and that a word that is too long is whole.
func TestWrap(t *testing.T) {
	const text = "one two  three\nfour a-word-of-23-characters five"
	if got, want := wrap(text, 9), "one two\nthree\nfour\na-word-of-23-characters\nfive"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
