package kernels_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchproc"

	"attnlab/attn"
	"attnlab/harness"
	"attnlab/harness/run"
	"attnlab/internal/processtest"
	"attnlab/kernels"
)

func TestMain(m *testing.M) {
	// benchstat reads units and their direction from such lines.
	if f := os.Args; strings.Contains(strings.Join(f, " "), "-test.bench=") {
		fmt.Println("Unit FLOP/s better=higher")
		fmt.Println("Unit scratch-B better=lower assume=exact")
	}
	os.Exit(m.Run())
}

// BenchmarkAttention runs every kernel on one core, with the benchmark names of a sweep's
// bench.txt.
//
//	go test -run '^$' -bench Attention -count 6 ./kernels > new.txt
//	go tool benchstat -col /kernel -filter '/isa:go' new.txt
func BenchmarkAttention(b *testing.B) { benchmark(b, "forward") }

// BenchmarkBackward runs the backward pass of every kernel on one core.
func BenchmarkBackward(b *testing.B) { benchmark(b, "backward") }

func benchmark(b *testing.B, pass string) {
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
		op := attn.OpsOf(k)[0].String()
		for _, c := range cells {
			point := run.Point{Kernel: algo, ISA: isa, Op: op, Pass: pass, Mask: c.mask, HeadsQ: c.heads, SeqKV: c.n, Dim: c.d}.WithDefaults()
			work, err := harness.Attention(k, point)
			if errors.Is(err, attn.ErrUnsupported) {
				continue
			} else if err != nil {
				b.Fatal(err)
			}
			b.Run(strings.TrimPrefix(point.Name(), "Attention/"), func(b *testing.B) {
				job, err := work.Prepare()
				if err != nil {
					b.Fatal(err)
				}
				defer job.Close()
				if err := job.Plan(); err != nil {
					b.Fatal(err)
				}
				call := func() {
					if _, err := job.Run(1); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportAllocs()
				call() // warm up
				for b.Loop() {
					call()
				}
				count, err := work.Count()
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(count.Flop)*float64(b.N)/b.Elapsed().Seconds(), "FLOP/s")
				b.ReportMetric(float64(job.Scratch()), "scratch-B")
			})
		}
	}
}

// TestBenchstat runs the benchmark's tiny cell as a process, and reads its output as benchstat
// would with -col /kernel -filter /isa:go. Every portable kernel must be a column of one table,
// with enough samples for a verdict.
func TestBenchstat(t *testing.T) {
	out, err := exec.Command(processtest.Self(t), "-test.run=^$", "-test.bench=Attention", "-test.benchtime=1x", "-test.count=6", "-test.short").Output()
	if err != nil {
		t.Fatal(err)
	}
	filter, err := benchproc.NewFilter("/isa:go")
	if err != nil {
		t.Fatal(err)
	}
	var parser benchproc.ProjectionParser
	project := func(s string) *benchproc.Projection {
		p, err := parser.Parse(s, filter)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	table, row, col := project(".config"), project(".fullname"), project("/kernel")
	tables, rows, samples := map[benchproc.Key]bool{}, map[benchproc.Key]bool{}, map[string]int{}
	r := benchfmt.NewReader(bytes.NewReader(out), "go test")
	for r.Scan() {
		res, ok := r.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		if match, err := filter.Apply(res); err != nil || !match {
			continue
		}
		tables[table.Project(res)], rows[row.Project(res)] = true, true
		samples[col.Project(res).Get(col.Fields()[0])]++
		for _, unit := range []string{"sec/op", "FLOP/s", "scratch-B", "allocs/op"} {
			if _, ok := res.Value(unit); !ok {
				t.Errorf("%s has no %s", res.Name, unit)
			}
		}
	}
	for _, k := range kernels.All() {
		if algo, isa := k.Name(); isa == "go" && samples[algo] != 6 {
			t.Errorf("%d samples of %s, want 6", samples[algo], algo)
		}
	}
	if len(tables) != 1 || len(rows) != 1 {
		t.Errorf("%d tables and %d rows, want one of each: %v", len(tables), len(rows), rows)
	}
	if dir := r.Units().GetBetter("FLOP/s"); dir != 1 {
		t.Errorf("FLOP/s is better in direction %d, want 1", dir)
	}
}

// TestByName checks that ByName finds every kernel of All, and that its errors list the kernels or
// the reason.
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
		{"flash", "sse", "no kernel flash/sse: use one of naive/go, "}, {"slow", "go", "no kernel slow/go"}, {"", "", "no kernel /"},
	} {
		if _, err := kernels.ByName(c.algo, c.isa); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("ByName(%q, %q): %v, want %q", c.algo, c.isa, err, c.want)
		}
	}
}

// TestBest checks which kernel Best returns, and its error for a problem that no kernel supports.
func TestBest(t *testing.T) {
	p := attn.Problem{Batch: 1, SeqQ: 8, SeqKV: 8, HeadsQ: 1, HeadsKV: 1, Dim: 4, DimV: 4}
	for _, c := range []struct {
		name, want string
		change     func(*attn.Problem)
	}{
		{"plain", "flash", func(*attn.Problem) {}},
		{"linear", "linear", func(p *attn.Problem) { p.Op = attn.OpLinear }},
		{"weights", "tiled", func(p *attn.Problem) { p.Want = attn.WantWeights }},
		{"gradients", "flash", func(p *attn.Problem) { p.Want = attn.WantGrad }},
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
	p.Op, p.Mask = attn.OpLinear, attn.Window(5, 0)
	if _, err := kernels.Best(p); err == nil || !strings.Contains(err.Error(), "linear/go does not do: window") {
		t.Errorf("linear attention in a window: %v, want an error that names what linear lacks", err)
	}
	p.HeadsKV = 0
	if _, err := kernels.Best(p); err == nil || err.Error() != "problem: 0 key heads do not divide 1 query heads" {
		t.Errorf("no key heads: %v", err)
	}
}

// Example computes attention on eight queries and keys with the fastest kernel.
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
