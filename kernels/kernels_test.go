package kernels_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/harness/run"
	"attnlab/kernels"
)

func TestMain(m *testing.M) {
	// benchstat reads units and their direction from lines such as these
	if f := os.Args; strings.Contains(strings.Join(f, " "), "-test.bench=") {
		fmt.Println("Unit FLOP/s better=higher")
		fmt.Println("Unit scratch-B better=lower assume=exact")
	}
	os.Exit(m.Run())
}

// BenchmarkAttention runs every kernel on one core, in the names of a sweep's bench.txt.
//
//	go test -run '^$' -bench Attention -count 6 ./kernels > new.txt
//	go tool benchstat -col /kernel -filter '/isa:go' new.txt
func BenchmarkAttention(b *testing.B) {
	type cell struct {
		mask        string
		heads, n, d int
	}
	cells := []cell{{"full", 1, 256, 64}, {"full", 1, 1024, 64}, {"causal", 1, 1024, 64}, {"full", 1, 1024, 128}}
	if testing.Short() {
		cells = []cell{{"full", 1, 16, 8}}
	}
	for _, k := range kernels.All() {
		algo, isa := k.Name()
		for _, c := range cells {
			point := run.Point{Kernel: algo, ISA: isa, Mask: c.mask, HeadsQ: c.heads, SeqKV: c.n, Dim: c.d}.WithDefaults()
			p, err := point.Problem()
			if err != nil {
				b.Fatal(err)
			}
			b.Run(strings.TrimPrefix(point.Name(), "Attention/"), func(b *testing.B) {
				plan, err := k.Plan(p, nil)
				if err != nil {
					b.Fatal(err)
				}
				a, err := cases.NewArgs(p, "bhsd", nil)
				if err != nil {
					b.Fatal(err)
				}
				cases.Fill("normal", p, a, 1)
				b.ReportAllocs()
				plan.Forward(a) // warm
				for b.Loop() {
					plan.Forward(a)
				}
				b.ReportMetric(float64(p.Count(nil).Flop)*float64(b.N)/b.Elapsed().Seconds(), "FLOP/s")
				b.ReportMetric(float64(plan.Scratch()), "scratch-B")
				runtime.KeepAlive(a)
			})
		}
	}
}

func TestByName(t *testing.T) {
	for _, k := range kernels.All() {
		algo, isa := k.Name()
		got, err := kernels.ByName(algo, isa)
		if err != nil {
			t.Error(err)
		} else if a, i := got.Name(); a != algo || i != isa {
			t.Errorf("ByName(%s, %s) is %s/%s", algo, isa, a, i)
		}
	}
	for _, c := range []struct{ algo, isa, want string }{
		{"flash", "sse", "no kernel flash/sse: there is naive/go, "}, {"slow", "go", "no kernel slow/go"}, {"", "", "no kernel /"},
	} {
		if _, err := kernels.ByName(c.algo, c.isa); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("ByName(%q, %q): %v, want %q", c.algo, c.isa, err, c.want)
		}
	}
}

func TestBest(t *testing.T) {
	p := attn.Problem{Batch: 1, SeqQ: 8, SeqKV: 8, HeadsQ: 1, HeadsKV: 1, Dim: 4, DimV: 4}
	for _, c := range []struct {
		name, want string
		change     func(*attn.Problem)
	}{
		{"plain", "flash", func(*attn.Problem) {}},
		{"linear", "linear", func(p *attn.Problem) { p.Op = attn.OpLinear }},
		{"weights", "naive", func(p *attn.Problem) { p.Want = attn.WantWeights }},
	} {
		p := p
		c.change(&p)
		k, err := kernels.Best(p)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if algo, _ := k.Name(); algo != c.want {
			t.Errorf("%s: best is %s, want %s", c.name, algo, c.want)
		}
	}
	p.Score.Softcap = 2
	if _, err := kernels.Best(p); err == nil || !strings.Contains(err.Error(), "softcap") {
		t.Errorf("softcap: %v, want an error that names it", err)
	}
}

// Example is attention on eight queries and keys, by the fastest kernel there is.
func Example() {
	p := attn.Problem{Batch: 1, SeqQ: 8, SeqKV: 8, HeadsQ: 2, HeadsKV: 1, Dim: 4, DimV: 4, Mask: attn.Causal()}
	k, err := kernels.Best(p)
	if err != nil {
		panic(err)
	}
	plan, err := k.Plan(p, nil)
	if err != nil {
		panic(err)
	}
	a := &attn.Args{
		Q: attn.New(attn.BSHD, 1, 8, 2, 4), K: attn.New(attn.BSHD, 1, 8, 1, 4), V: attn.New(attn.BSHD, 1, 8, 1, 4),
		Out: attn.New(attn.BSHD, 1, 8, 2, 4),
	}
	for i := range a.V.Data {
		a.V.Data[i] = float32(i / 4) // value row j is j; all scores are equal
	}
	plan.Forward(a)
	for i := range 4 {
		fmt.Println(a.Out.Row(0, i, 1))
	}
	// Output:
	// [0 0 0 0]
	// [0.5 0.5 0.5 0.5]
	// [1 1 1 1]
	// [1.5 1.5 1.5 1.5]
}
