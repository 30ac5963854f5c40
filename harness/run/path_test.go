package run

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPathsAreRecorded checks that run.json has the paths of kernels, and that each plan has the
// path of its kernel, protected by the sum of its line.
func TestPathsAreRecorded(t *testing.T) {
	dir, want := t.TempDir(), Paths{"flash/avx2": "exp=reduced"}
	j, err := Create(dir, Meta{Paths: want})
	if err != nil {
		t.Fatal(err)
	}
	points := []Point{
		Point{Kernel: "flash", ISA: "avx2", SeqKV: 8, Dim: 8}.WithDefaults(),
		Point{Kernel: "flash", ISA: "go", SeqKV: 8, Dim: 8}.WithDefaults(),
	}
	for _, at := range points {
		if err := j.Append(Record{Plan: &Plan{Point: at, Path: "of the caller's"}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := [2]string{r.Cell(points[0]).Path, r.Cell(points[1]).Path}; got != [2]string{"exp=reduced", ""} || !maps.Equal(r.Meta.Paths, want) {
		t.Errorf("got paths %q in the journal and %v in run.json, want exp=reduced of avx2 alone", got, r.Meta.Paths)
	}
	path := filepath.Join(dir, JournalFile)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for was, is := range map[string]string{"exp=reduced": "exp=table11", `,"path":"exp=reduced"`: ""} {
		if err := os.WriteFile(path, bytes.Replace(data, []byte(was), []byte(is), 1), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), ":1: damaged: its sum is") {
			t.Errorf("%s became %q: got %v, want a damaged line 1", was, is, err)
		}
	}
}

// TestPathsOf checks that the paths of a run are the paths of the kernels in its plans.
func TestPathsOf(t *testing.T) {
	all := Paths{"flash/avx2": "a", "flash/go": "b", "linear/go": "c"}
	for _, c := range []struct {
		points []Point
		want   Paths
	}{
		{nil, nil},
		{[]Point{{Kernel: "naive", ISA: "go"}}, nil},
		{[]Point{{Kernel: "flash", ISA: "go", Dim: 8}, {Kernel: "naive", ISA: "go"}, {Kernel: "flash", ISA: "go", Dim: 16}}, Paths{"flash/go": "b"}},
		{[]Point{{Kernel: "flash", ISA: "avx2"}, {Kernel: "linear", ISA: "go"}}, Paths{"flash/avx2": "a", "linear/go": "c"}},
	} {
		if got := all.Of(c.points); !maps.Equal(got, c.want) {
			t.Errorf("%v: got %v, want %v", c.points, got, c.want)
		}
	}
}

// TestPathDifferences checks that only a kernel with a path on both sides differs.
func TestPathDifferences(t *testing.T) {
	was := Paths{"a/go": "x", "b/go": "x", "c/go": "x", "d/go": "x"}
	now := Paths{"a/go": "x", "b/go": "y", "c/go": "z", "e/go": "y"}
	if got, want := was.Differences(now), []string{"the path of b/go is y, was x", "the path of c/go is z, was x"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := Paths(nil).Differences(now); got != nil {
		t.Errorf("a run that is older than paths: got %q", got)
	}
}

// TestOtherPath checks which pairs of plans belong to one kernel on two paths.
func TestOtherPath(t *testing.T) {
	plan := func(kernel, isa, path string) *Plan { return &Plan{Point: Point{Kernel: kernel, ISA: isa}, Path: path} }
	for _, c := range []struct {
		a, b *Plan
		want string
	}{
		{plan("flash", "go", "x"), plan("flash", "go", "y"), "flash/go took the path x in the one and y in the other: another kernel, not compared"},
		{plan("flash", "go", "x"), plan("flash", "go", "x"), ""},
		{plan("flash", "go", ""), plan("flash", "go", "y"), ""},
		{plan("flash", "go", "x"), plan("flash", "go", ""), ""},
		{plan("flash", "go", "x"), plan("flash", "avx2", "y"), ""},
		{plan("flash", "go", "x"), plan("tiled", "go", "y"), ""},
	} {
		if got := OtherPath(c.a, c.b, [2]string{"the one", "the other"}); got != c.want {
			t.Errorf("%v and %v: got %q, want %q", c.a, c.b, got, c.want)
		}
	}
}
