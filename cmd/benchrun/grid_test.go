package main

import (
	"io"
	"slices"
	"testing"

	"attnlab/attn"
	"attnlab/harness/run"
	"attnlab/kernels"
)

// grid reads the flags of a sweep.
func grid(t *testing.T, args ...string) *Grid {
	t.Helper()
	c, _, err := parse(append([]string{"sweep"}, args...), streams{io.Discard, io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	return &c.Sweep.Grid
}

func gridPoints(t *testing.T, args ...string) []run.Point {
	t.Helper()
	points, err := grid(t, args...).points(kernels.All(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[run.Point]bool{}
	for _, p := range points {
		if err := p.Validate(); err != nil {
			t.Errorf("%v", err)
		}
		if seen[p] {
			t.Errorf("%s stands there twice", p.Name())
		}
		seen[p] = true
	}
	return points
}

// Without flags: every algorithm, on the portable set, the best one of this machine, and what is
// not a level; full and causal; four lengths.
func TestDefaultGrid(t *testing.T) {
	points := gridPoints(t)
	here := availableISAs()
	groups := map[string][]string{}
	algos := map[string]bool{}
	for _, p := range points {
		algos[p.Kernel] = true
		if p.ISA != "go" && p.ISA != "blas" && p.ISA != here[len(here)-1] {
			t.Errorf("%s is neither portable nor the best", p.Name())
		}
		if p.Op == attn.OpSoftmax.String() {
			groups[p.Group()] = append(groups[p.Group()], p.Kernel+"/"+p.ISA)
		}
	}
	if len(algos) != len(algorithms(kernels.All())) {
		t.Errorf("kernels %v", algos)
	}
	if len(groups) != 8 {
		t.Errorf("%d softmax problems, want 2 masks of 4 lengths", len(groups))
	}
	for g, names := range groups {
		for _, want := range []string{"naive/go", "tiled/blas", "tiled/go", "flash/go"} {
			if !slices.Contains(names, want) {
				t.Errorf("%s: %s is missing from %v", g, want, names)
			}
		}
	}
}

func TestGridIsEveryCombination(t *testing.T) {
	points := gridPoints(t, "--kernel=naive", "--seq=1,7", "--seq-kv=8,9,10", "--mask=causal", "--heads=4", "--kv-heads=1,2,4", "--dim=3", "--dim-v=5",
		"--batch=2", "--threads=1,2", "--layout=bshd", "--data=std30", "--with=lse+mean,bias")
	if want := 2 * 3 * 3 * 2 * 2; len(points) != want {
		t.Errorf("%d points, want %d", len(points), want)
	}
	want := run.Point{
		Kernel: "naive", ISA: "go", Op: "softmax", Pass: "forward", Mask: "causal", Batch: 2, HeadsQ: 4, HeadsKV: 2, SeqQ: 7, SeqKV: 9, Dim: 3, DimV: 5,
		Layout: "bshd", Data: "std30", Features: "lse+mean", Store: "f32", Threads: 2,
	}
	if !slices.Contains(points, want) {
		t.Errorf("%s is missing", want.Name())
	}
	if again := gridPoints(t, "--kernel=naive,naive", "--seq=8,8", "--mask=full,full"); len(again) != 1 {
		t.Errorf("a value given twice makes %d points", len(again))
	}
}

// The kernels that compete on a problem stand together, whatever order the flags have.
func TestContendersStandTogether(t *testing.T) {
	points := gridPoints(t, "--kernel=naive,flash", "--isa=go", "--seq=8,16")
	for i := 0; i+1 < len(points); i += 2 {
		if points[i].Group() != points[i+1].Group() || points[i].Kernel == points[i+1].Kernel {
			t.Errorf("%s stands beside %s", points[i].Name(), points[i+1].Name())
		}
	}
}

// What is asked for by name and is not to be had here stays in the grid, to become a row with its
// reason.
func TestAskedForByName(t *testing.T) {
	points := gridPoints(t, "--kernel=naive", "--isa=go,neon,avx512", "--seq=8", "--mask=full")
	if len(points) != 3 {
		t.Fatalf("%d points, want 3", len(points))
	}
	lab := newLab(kernels.All())
	for _, p := range points {
		if _, err := lab.Workload(p); (err == nil) != (p.ISA == "go") {
			t.Errorf("%s: %v", p.Name(), err)
		}
	}
	if points := gridPoints(t, "--isa=blas", "--seq=8", "--mask=full"); len(points) != 1 || points[0].Kernel != "tiled" {
		t.Errorf("--isa blas alone: %v", points)
	}
}

func TestGridTooLarge(t *testing.T) {
	var many []int
	for n := 1; n <= 400; n++ {
		many = append(many, n)
	}
	g := grid(t)
	g.Seq, g.Dim = many, many
	if _, err := g.points(kernels.All(), io.Discard); exitCode(err) != exitUsage {
		t.Errorf("160000 problems: %v", err)
	}
}
