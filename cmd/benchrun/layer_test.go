package main

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/harness/run"
	"attnlab/kernels"
	"attnlab/kernels/asm"
	"attnlab/kernels/naive"
	"attnlab/nn"
)

// layerPoints are small layers of each kind, on one kernel.
func layerPoints(kernel, isa string) []run.Point {
	var points []run.Point
	for _, p := range []run.Point{
		{Layer: run.LayerMHA, Mask: "causal", Batch: 2},
		{Layer: run.LayerMHA, Pass: "both"},
		{Layer: run.LayerBlock, Mask: "window:3:0", Threads: 2},
		{Layer: run.LayerBlock, Mask: "causal", Pass: "both", Batch: 2, Threads: 2},
		{Layer: run.LayerDecode, Mask: "causal", SeqQ: 1, Batch: 2},
		{Layer: run.LayerDecode, Mask: "causal", SeqQ: 1, Store: "f16", Page: 8},
		{Layer: run.LayerDecode, Mask: "window:5:0", SeqQ: 1, Store: "int8"},
	} {
		p.Kernel, p.ISA, p.HeadsQ, p.HeadsKV, p.SeqKV, p.Dim = kernel, isa, 4, 2, 21, 6
		points = append(points, p.WithDefaults())
	}
	return points
}

// plannedLayer takes a layer so far that it can be timed.
func plannedLayer(t *testing.T, k attn.Kernel, at run.Point) *layerJob {
	t.Helper()
	w, err := layerWorkload(k, at)
	if err != nil {
		t.Fatalf("%s: %v", at.Name(), err)
	}
	j, err := w.Prepare()
	if err != nil {
		t.Fatalf("%s: %v", at.Name(), err)
	}
	t.Cleanup(func() { j.Close() })
	if err := j.Plan(); err != nil {
		t.Fatalf("%s: %v", at.Name(), err)
	}
	return j.(*layerJob)
}

// Every layer around every kernel is right, and takes the parts of its time apart without
// allocating.
func TestLayers(t *testing.T) {
	for _, k := range kernels.All() {
		algo, isa := k.Name()
		if !slices.Contains(attn.OpsOf(k), attn.OpSoftmax) {
			continue
		}
		worst := map[string]float64{}
		for _, at := range layerPoints(algo, isa) {
			j := plannedLayer(t, k, at)
			took, err := j.Run(3)
			if err != nil {
				t.Fatal(err)
			}
			if took.Attention <= 0 || took.Products <= 0 || took.Attention+took.Products > took.Wall {
				t.Errorf("%s: %+v", at.Name(), took)
			}
			v, err := j.Check(8, 1)
			if err != nil || !(v.Worst <= 1) || v.Worst == 0 || v.Rows != min(8, at.Batch*at.SeqQ*at.HeadsQ) {
				t.Errorf("%s: %+v, %v", at.Name(), v, err)
			}
			if v, err := j.Check(8, 2); err != nil || !(v.Worst <= 1) { // as often as one likes
				t.Errorf("%s, for the second time: %+v, %v", at.Name(), v, err)
			}
			if n := testing.AllocsPerRun(10, func() { j.side.call(j.x, j.dy) }); n != 0 {
				t.Errorf("%s: %v allocations a call", at.Name(), n)
			}
			worst[at.Layer] = max(worst[at.Layer], v.Worst)
		}
		t.Logf("%s/%s: worst err/tol %v", algo, isa, worst)
	}
}

// A kernel that notes what it is asked.
type noting struct {
	attn.Kernel
	asked *[]attn.Problem
}

func (k noting) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	*k.asked = append(*k.asked, p)
	return k.Kernel.Plan(p, team)
}

// What a workload has its kernel check is what the layer asks then, and what a layer holds was told
// before.
func TestLayerTellsWhatItTakes(t *testing.T) {
	for _, at := range layerPoints("naive", "go") {
		var asked []attn.Problem
		j := plannedLayer(t, noting{naive.New(), &asked}, at)
		want, err := layerProblem(at)
		if err != nil {
			t.Fatal(err)
		}
		if len(asked) == 0 || slices.ContainsFunc(asked, func(p attn.Problem) bool { return p != want }) {
			t.Errorf("%s: the kernel is asked %+v, and checked for %+v", at.Name(), asked, want)
		}
		weights, norms := at.Weights(), int64(0)
		if at.Layer != run.LayerMHA {
			norms = 4 * int64(layerWidth(at))
		}
		if n := int64(nn.Count(j.layer.Params())); n != weights+norms {
			t.Errorf("%s: %d weights and %d of norms were counted, there are %d", at.Name(), weights, norms, n)
		}
	}
}

// A spoilt kernel is naive with a wrong number somewhere.
type spoilt struct {
	attn.Kernel
	out, grad func(row []float32)
}

func (k spoilt) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	plan, err := k.Kernel.Plan(p, team)
	if err != nil {
		return nil, err
	}
	return spoiltPlan{plan.(attn.Differentiable), k}, nil
}

type spoiltPlan struct {
	attn.Differentiable
	k spoilt
}

func (p spoiltPlan) Forward(a *attn.Args) {
	p.Differentiable.Forward(a)
	if p.k.out != nil {
		p.k.out(a.Out.Row(0, 0, 0))
	}
}

func (p spoiltPlan) Backward(a *attn.Args, g *attn.Grads) {
	p.Differentiable.Backward(a, g)
	if p.k.grad != nil {
		p.k.grad(g.K.Row(0, 0, 0))
	}
}

// A layer is wrong where its kernel is, in the output or in a gradient, and where a product is.
func TestLayerCheckFindsFaults(t *testing.T) {
	spoil := func(row []float32) { row[1] += 1e-3 }
	at := layerPoints("naive", "go")[3]
	for where, k := range map[string]spoilt{
		"attention: Out[":         {naive.New(), spoil, nil},
		"attention, backward: dK": {naive.New(), nil, spoil},
	} {
		j := plannedLayer(t, k, at)
		if v, err := j.Check(1000, 1); err != nil || !(v.Worst > 1) {
			t.Errorf("%s...: %+v, %v", where, v, err)
		}
		judge := &layerJudge{rows: 1000, rand: rand.New(rand.NewPCG(1, 1))}
		clearGrads(j.layer)
		j.watch.judge = judge
		if j.side.call(j.x, j.dy); judge.err != nil || !(judge.Worst > 1) || !strings.HasPrefix(judge.Where, where) {
			t.Errorf("%s...: %+v, %v", where, judge.Verdict, judge.err)
		}
	}

	j := plannedLayer(t, naive.New(), at)
	judge := &layerJudge{}
	j.side.pass.Forward(j.x)
	if err := j.compare(judge); err != nil || judge.Worst != 0 {
		t.Errorf("naive attention and portable loops against themselves: %+v, %v", judge.Verdict, err)
	}
	j.kernel = spoilt{naive.New(), nil, spoil}
	if err := j.compare(judge); err != nil || !(judge.Worst > 1) || !strings.HasPrefix(judge.Where, "the gradient of ") {
		t.Errorf("a wrong gradient: %+v, %v", judge.Verdict, err)
	}
}

func TestLayerCheckFindsWrongProducts(t *testing.T) {
	p := nn.Product{A: nn.NewMat(3, 5), B: nn.NewMat(4, 5), C: nn.NewMat(3, 4), BT: true}
	for i := range p.A.Data {
		p.A.Data[i] = float32(i)
	}
	for i := range p.B.Data {
		p.B.Data[i] = float32(i * i)
	}
	nn.NewMultiplier(asm.Levels()[0].Ops, nil).Do(p)
	judged := func() *layerJudge {
		j := &layerJudge{rand: rand.New(rand.NewPCG(1, 1))}
		j.product(p)
		return j
	}
	if j := judged(); !(j.Worst <= 1) {
		t.Errorf("a right product: %+v", j.Verdict)
	}
	p.C.Data[11] *= 1.0001
	if j := judged(); !(j.Worst > 1) || !strings.Contains(j.Where, "element 2, 3") {
		t.Errorf("a wrong last number: %+v", j.Verdict)
	}
}

// A layer names every combination, reads --seq as the length of the cache where it decodes, and
// stands beside its kernel alone.
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
	all, err := grid(t, "--isa=go", "--layer=mha", "--seq=16", "--mask=full").points(kernels.All(), &remarks)
	if err != nil || slices.ContainsFunc(all, func(p run.Point) bool { return p.Op != attn.OpSoftmax.String() }) {
		t.Errorf("%v, %v", all, err)
	}
	if want := "linear is left out where there is layer mha, which op linear does not have"; !strings.Contains(remarks.String(), want) {
		t.Errorf("%q, want %q", remarks.String(), want)
	}
	lab := newLab(kernels.All())
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
