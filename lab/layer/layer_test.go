package layer

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

// layers makes layers of this machine's sets.
func layers() *Layers { return &Layers{Sets: asm.Levels(), Reference: naive.New()} }

// points returns small layers of each kind, around one kernel.
func points(kernel, isa string) []run.Point {
	var list []run.Point
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
		list = append(list, p.WithDefaults())
	}
	return list
}

// planned returns a layer that is ready to be timed.
func planned(t *testing.T, k attn.Kernel, at run.Point) *job {
	t.Helper()
	w, err := layers().Workload(k, at)
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
	return j.(*job)
}

// TestLayers checks that every layer around every kernel is right, and that it times its attention
// and its products without allocating.
func TestLayers(t *testing.T) {
	for _, k := range kernels.All() {
		algo, isa := k.Name()
		if !slices.Contains(attn.OpsOf(k), attn.OpSoftmax) {
			continue
		}
		worst := map[string]float64{}
		for _, at := range points(algo, isa) {
			j := planned(t, k, at)
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
			// A check leaves nothing behind that the next one would find.
			if v, err := j.Check(8, 2); err != nil || !(v.Worst <= 1) {
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

// A noting kernel notes the problems that it plans.
type noting struct {
	attn.Kernel
	asked *[]attn.Problem
}

func (k noting) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	*k.asked = append(*k.asked, p)
	return k.Kernel.Plan(p, team)
}

// TestLayerTellsWhatItTakes checks that the layer plans the problem that its workload checked, and
// that the number of its weights is the one that its point counts.
func TestLayerTellsWhatItTakes(t *testing.T) {
	for _, at := range points("naive", "go") {
		var asked []attn.Problem
		j := planned(t, noting{naive.New(), &asked}, at)
		want, err := problem(at)
		if err != nil {
			t.Fatal(err)
		}
		if len(asked) == 0 || slices.ContainsFunc(asked, func(p attn.Problem) bool { return p != want }) {
			t.Errorf("%s: the kernel is asked %+v, and checked for %+v", at.Name(), asked, want)
		}
		weights, norms := at.Weights(), int64(0)
		if at.Layer != run.LayerMHA {
			norms = 4 * int64(width(at))
		}
		if n := int64(nn.Count(j.layer.Params())); n != weights+norms {
			t.Errorf("%s: %d weights and %d of norms were counted, there are %d", at.Name(), weights, norms, n)
		}
	}
}

// A spoilt kernel changes a row of its answer.
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

// TestLayerCheckFindsFaults checks that a layer is wrong when its kernel is, in the output or in a
// gradient.
func TestLayerCheckFindsFaults(t *testing.T) {
	spoil := func(row []float32) { row[1] += 1e-3 }
	at := points("naive", "go")[3]
	for where, k := range map[string]spoilt{
		"attention: Out[":         {naive.New(), spoil, nil},
		"attention, backward: dK": {naive.New(), nil, spoil},
	} {
		j := planned(t, k, at)
		if v, err := j.Check(1000, 1); err != nil || !(v.Worst > 1) {
			t.Errorf("%s...: %+v, %v", where, v, err)
		}
		found := &judge{rows: 1000, rand: rand.New(rand.NewPCG(1, 1))}
		clearGrads(j.layer)
		j.watch.judge = found
		if j.side.call(j.x, j.dy); found.err != nil || !(found.Worst > 1) || !strings.HasPrefix(found.Where, where) {
			t.Errorf("%s...: %+v, %v", where, found.Verdict, found.err)
		}
	}

	j := planned(t, naive.New(), at)
	found := &judge{}
	j.side.pass.Forward(j.x)
	if err := j.compare(found); err != nil || found.Worst != 0 {
		t.Errorf("the reference kernel and portable loops compared with themselves: %+v, %v", found.Verdict, err)
	}
	j.kernel = spoilt{naive.New(), nil, spoil}
	if err := j.compare(found); err != nil || !(found.Worst > 1) || !strings.HasPrefix(found.Where, "the gradient of ") {
		t.Errorf("a wrong gradient: %+v, %v", found.Verdict, err)
	}
}

// TestLayerCheckFindsWrongProducts checks that one wrong element of a product is found.
func TestLayerCheckFindsWrongProducts(t *testing.T) {
	p := nn.Product{A: nn.NewMat(3, 5), B: nn.NewMat(4, 5), C: nn.NewMat(3, 4), BT: true}
	for i := range p.A.Data {
		p.A.Data[i] = float32(i)
	}
	for i := range p.B.Data {
		p.B.Data[i] = float32(i * i)
	}
	nn.NewMultiplier(asm.Levels()[0].Ops, nil).Do(p)
	judged := func() *judge {
		j := &judge{rand: rand.New(rand.NewPCG(1, 1))}
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
