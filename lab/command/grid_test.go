package command

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/harness/run"
	"attnlab/kernels"
)

// grid returns the grid of a sweep with the given flags.
func grid(t *testing.T, args ...string) *Grid {
	t.Helper()
	c, _, err := parse(append([]string{"sweep"}, args...), streams{io.Discard, io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	return &c.Sweep.Grid
}

// gridPoints returns the points of a sweep with the given flags, which must be valid and differ.
func gridPoints(t *testing.T, args ...string) []run.Point {
	t.Helper()
	points, err := grid(t, args...).points(labOf(kernels.All()), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[run.Point]bool{}
	for _, p := range points {
		if err := p.Validate(); err != nil {
			t.Errorf("%v", err)
		}
		if seen[p] {
			t.Errorf("%s is there twice", p.Name())
		}
		seen[p] = true
	}
	return points
}

// TestDefaultGrid checks the points without flags: every algorithm, on the portable set, on the
// best one of this machine, and on sets that are no level; full and causal; four lengths.
func TestDefaultGrid(t *testing.T) {
	points := gridPoints(t)
	here := labOf(nil).Sets.Available()
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

// TestGridIsEveryCombination checks that each combination of values is one point.
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
		t.Errorf("values given twice: got %d points, want 1", len(again))
	}
}

// TestContendersStandTogether checks that the kernels that compete on a problem are next to each
// other, whatever the order of the flags.
func TestContendersStandTogether(t *testing.T) {
	points := gridPoints(t, "--kernel=naive,flash", "--isa=go", "--seq=8,16")
	for i := 0; i+1 < len(points); i += 2 {
		if points[i].Group() != points[i+1].Group() || points[i].Kernel == points[i+1].Kernel {
			t.Errorf("%s is next to %s", points[i].Name(), points[i+1].Name())
		}
	}
}

// TestAskedForByName checks that a contender that is asked for by name stays in the grid even if it
// cannot run here.
func TestAskedForByName(t *testing.T) {
	points := gridPoints(t, "--kernel=naive", "--isa=go,neon,avx512", "--seq=8", "--mask=full")
	if len(points) != 3 {
		t.Fatalf("%d points, want 3", len(points))
	}
	lab := labOf(kernels.All()).server()
	for _, p := range points {
		if _, err := lab.Workload(p); (err == nil) != (p.ISA == "go") {
			t.Errorf("%s: %v", p.Name(), err)
		}
	}
	if points := gridPoints(t, "--isa=blas", "--seq=8", "--mask=full"); len(points) != 1 || points[0].Kernel != "tiled" {
		t.Errorf("--isa blas alone: %v", points)
	}
}

// TestGridTooLarge checks that a grid that can only be a mistake is refused.
func TestGridTooLarge(t *testing.T) {
	var many []int
	for n := 1; n <= 400; n++ {
		many = append(many, n)
	}
	g := grid(t)
	g.set("seq_q", many...)
	g.set("dim", many...)
	if _, err := g.points(labOf(kernels.All()), io.Discard); exitCode(err) != exitUsage {
		t.Errorf("160000 problems: %v", err)
	}
}

// TestGridOrder checks the order of points: layers vary slowest and lengths fastest, and the other
// axes as their columns do.
func TestGridOrder(t *testing.T) {
	var names []string
	for _, a := range loops() {
		names = append(names, a.Flag.Name)
	}
	want := "layer pass mask batch heads kv-heads dim dim-v layout data with store page threads rule heads-v seq-kv seq"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("got loops over %s, want %s", got, want)
	}
	var lengths []string
	for _, p := range gridPoints(t, "--kernel=naive", "--isa=go", "--mask=full", "--dim=4", "--seq=8,16", "--seq-kv=32,64", "--batch=1,2") {
		lengths = append(lengths, fmt.Sprint(p.Batch, p.SeqKV, p.SeqQ))
	}
	if got, want := strings.Join(lengths, ", "), "1 32 8, 1 32 16, 1 64 8, 1 64 16, 2 32 8, 2 32 16, 2 64 8, 2 64 16"; got != want {
		t.Errorf("got points of %s, want %s", got, want)
	}
}

// TestFlagged checks that a point is described by the flags that its defaults do not give.
func TestFlagged(t *testing.T) {
	for want, p := range map[string]run.Point{
		"--kernel flash --isa go --seq 8 --dim 4":                        {SeqKV: 8, Dim: 4},
		"--kernel flash --isa go --seq 1 --seq-kv 8 --dim 4 --dim-v 5":   {SeqQ: 1, SeqKV: 8, Dim: 4, DimV: 5},
		"--kernel flash --isa go --seq 8 --dim 4 --heads 4 --kv-heads 2": {SeqKV: 8, Dim: 4, HeadsQ: 4, HeadsKV: 2},
		"--kernel flash --isa go --mask causal --seq 8 --dim 4 --with lse --page 16": {
			Mask: "causal", SeqKV: 8, Dim: 4, Features: "lse", Page: 16,
		},
		"--kernel flash --isa go --seq 8 --dim 16":               {Op: "linear", SeqKV: 8, Dim: 16},
		"--kernel flash --isa go --seq 8 --dim 16 --with relu+1": {Op: "linear", SeqKV: 8, Dim: 16, Features: "relu+1"},
	} {
		p.Kernel, p.ISA = "flash", "go"
		if got := flagged(p.WithDefaults()); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestLayerGrid checks that --layer names layers beside the kernel alone, that --seq is the length
// of the cache of a layer that decodes, and that what has no layers is left out.
func TestLayerGrid(t *testing.T) {
	points := gridPoints(t, "--kernel=flash", "--isa=go", "--layer=,mha,block,decode", "--seq=16,32", "--heads=2", "--dim=8", "--mask=causal")
	if len(points) != 8 {
		t.Errorf("%d points, want 8", len(points))
	}
	for _, want := range []run.Point{
		{SeqKV: 16},
		{Layer: run.LayerMHA, SeqKV: 32},
		{Layer: run.LayerBlock, SeqKV: 16},
		{Layer: run.LayerDecode, SeqQ: 1, SeqKV: 32},
	} {
		want.Kernel, want.ISA, want.Mask, want.HeadsQ, want.Dim = "flash", "go", "causal", 2, 8
		if want = want.WithDefaults(); !slices.Contains(points, want) {
			t.Errorf("%s is missing", want.Name())
		}
	}
	var remarks strings.Builder
	all, err := grid(t, "--isa=go", "--layer=mha", "--seq=16", "--mask=full").points(labOf(kernels.All()), &remarks)
	if err != nil || slices.ContainsFunc(all, func(p run.Point) bool { return p.Op != attn.OpSoftmax.String() }) {
		t.Errorf("%v, %v", all, err)
	}
	if want := "linear is left out where there is layer mha, which op linear does not have"; !strings.Contains(remarks.String(), want) {
		t.Errorf("%q, want %q", remarks.String(), want)
	}
	lab := labOf(kernels.All()).server()
	for _, p := range points {
		w, err := lab.Workload(p)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := w.Count(); err != nil || n.Flop <= 0 || n.Bytes <= 0 {
			t.Errorf("%s: %+v, %v", p.Name(), n, err)
		}
	}
}

// TestRuleGrid checks that --rule makes points of linear attention under a causal mask, and what is
// left out and refused. The kernel of this test takes every rule.
func TestRuleGrid(t *testing.T) {
	lab := labOf(append(kernels.All(), anyRule{}))
	points := func(args ...string) (list []run.Point, remarks string, err error) {
		var b strings.Builder
		list, err = grid(t, append([]string{"--isa=go", "--seq=16", "--dim=8"}, args...)...).points(lab, &b)
		return list, b.String(), err
	}
	list, remarks, err := points("--kernel=linear", "--rule=plain,"+strings.Join(run.Rules()[1:], ","), "--heads-v=0,2")
	if want := 2*2 + 8*2; err != nil || len(list) != want {
		t.Errorf("got %d points, %v, want %d: plain under two masks, and 8 rules", len(list), err, want)
	}
	if want := "rule kda is left out where the mask is full: it reads tokens in order"; strings.Count(remarks, want) != 1 {
		t.Errorf("got %q, want %q", remarks, want)
	}
	for _, p := range list {
		if p.Rule != "" && p.Mask != "causal" {
			t.Errorf("%s is not causal", p.Name())
		}
	}
	list, remarks, err = points("--rule=,ssd", "--mask=causal")
	if err != nil || slices.ContainsFunc(list, func(p run.Point) bool { return p.Rule != "" && p.Op != "linear" }) {
		t.Errorf("got %v, %v", list, err)
	}
	if want := "flash is left out where there is rule ssd, which op softmax does not have"; !strings.Contains(remarks, want) {
		t.Errorf("got %q, want %q", remarks, want)
	}
	for want, args := range map[string][]string{
		"op softmax has no rule kda":                  {"--kernel=flash", "--rule=kda"},
		"op softmax has no value heads":               {"--kernel=flash", "--heads-v=2"},
		"--rule magic: one of plain, gated, delta":    {"--rule=magic"},
		"reads tokens in order: mask is full":         {"--kernel=linear", "--rule=kda", "--mask=full"},
		"for decoding use --seq 1 alone":              {"--kernel=linear", "--rule=kda", "--seq-kv=64"},
		"--heads 4 --heads-v 3: problem: 4 output he": {"--kernel=linear", "--heads-v=3", "--heads=4", "--mask=full"},
	} {
		if _, _, err := points(args...); exitCode(err) != exitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", args, err, want)
		}
	}
}

// anyRule claims linear attention under every rule.
type anyRule struct{ attn.Kernel }

func (anyRule) Name() (algo, isa string) { return "any", "none" }

func (anyRule) Check(p attn.Problem, _ int) (int64, error) { return 0, p.Validate() }
