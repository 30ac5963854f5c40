package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"text/tabwriter"

	"attnlab/attn"
	"attnlab/examples/internal/picture"
	"attnlab/examples/internal/program"
	"attnlab/kernels"
	"attnlab/nn"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

// A method is one kind of attention, used to retrieve a value by its key.
type method struct {
	name   string
	op     attn.Op
	linear attn.Linear
	scale  float64 // of the scores, in units of 1/sqrt(dim)
}

// methods are softmax at the usual scale and at twice that, and linear attention with each feature
// map. Identity features have no denominator, because it could be 0.
var methods = []method{
	{name: "softmax", scale: 1},
	{name: "softmax, scale x 2", scale: 2},
	{name: "linear, elu+1", op: attn.OpLinear, linear: attn.Linear{Feature: attn.EluPlusOne}, scale: 1},
	{name: "linear, relu+1", op: attn.OpLinear, linear: attn.Linear{Feature: attn.ReluPlusOne}, scale: 1},
	{name: "linear, identity", op: attn.OpLinear, linear: attn.Linear{Feature: attn.Identity, Unnormalised: true}, scale: 1},
}

// problem returns the attention problem of a method.
func (m *method) problem(haystacks, needles, n, dim int) attn.Problem {
	p := attn.Problem{Op: m.op, Linear: m.linear, Batch: haystacks, SeqQ: needles, SeqKV: n, HeadsQ: 1, HeadsKV: 1, Dim: dim, DimV: dim}
	p.Score.Scale = m.scale / math.Sqrt(float64(dim))
	return p
}

// A haystack is n keys with their values, and needles: queries that each equal one of the keys.
type haystack struct {
	q, k, v attn.Tensor
	planted []int // index of the key of each query, by batch entry and query
}

// newHaystacks returns a batch of haystacks. Keys are random directions of length sqrt(dim), as
// rows of unit variance have. Values are random directions of length 1.
func newHaystacks(haystacks, needles, n, dim int, r *rand.Rand) *haystack {
	h := &haystack{
		q: attn.New(attn.BHSD, haystacks, needles, 1, dim), k: attn.New(attn.BHSD, haystacks, n, 1, dim), v: attn.New(attn.BHSD, haystacks, n, 1, dim),
	}
	for b := range haystacks {
		for j := range n {
			direction(h.k.Row(b, j, 0), math.Sqrt(float64(dim)), r)
			direction(h.v.Row(b, j, 0), 1, r)
		}
		for i := range needles {
			j := r.IntN(n)
			copy(h.q.Row(b, i, 0), h.k.Row(b, j, 0))
			h.planted = append(h.planted, j)
		}
	}
	return h
}

// direction fills a row with a random direction of the given length.
func direction(row []float32, length float64, r *rand.Rand) {
	square := 0.0
	for i := range row {
		x := r.NormFloat64()
		row[i] = float32(x)
		square += x * x
	}
	factor := float32(length / math.Sqrt(square))
	for i := range row {
		row[i] *= factor
	}
}

// A result is how well a method retrieved the needles among n keys.
type result struct {
	n     int
	right float64 // fraction of needles whose value is the nearest of all to the output
	err   float64 // 1 - the mean cosine between value and output
}

// retrieve asks for every needle and compares the output with every value.
func retrieve(m *method, h *haystack, team *attn.Team, products *nn.Multiplier) (result, error) {
	haystacks, needles, n, dim := h.q.B, h.q.S, h.k.S, h.k.D
	p := m.problem(haystacks, needles, n, dim)
	kernel, err := kernels.Best(p)
	if err != nil {
		return result{}, err
	}
	plan, err := kernel.Plan(p, team)
	if err != nil {
		return result{}, err
	}
	out := attn.New(attn.BHSD, haystacks, needles, 1, dim)
	plan.Forward(&attn.Args{Q: h.q, K: h.k, V: h.v, Out: out})

	found, right, cosines := nn.NewMat(needles, n), 0, 0.0
	for b := range haystacks {
		products.Do(nn.Product{C: found, A: rows(&out, b), B: rows(&h.v, b), BT: true})
		for i := range needles {
			planted, near := h.planted[b*needles+i], found.Row(i)
			square := 0.0
			for _, x := range out.Row(b, i, 0) {
				square += float64(x) * float64(x)
			}
			cosines += float64(near[planted]) / math.Sqrt(square) // values are of length 1
			best := 0
			for j, x := range near {
				if x > near[best] {
					best = j
				}
			}
			if best == planted {
				right++
			}
		}
	}
	all := float64(haystacks * needles)
	return result{n, float64(right) / all, 1 - cosines/all}, nil
}

// rows returns the rows of one batch entry, in a tensor that has one head and no padding.
func rows(t *attn.Tensor, b int) nn.Mat {
	return nn.Mat{Data: t.Data[b*t.SB:][:t.S*t.D], Rows: t.S, Cols: t.D, Stride: t.SS}
}

// settings are everything that determines the figures.
type settings struct {
	Seed               uint64
	Dim, Least, Most   int
	Haystacks, Needles int
}

func defaults() settings {
	return settings{Seed: 1, Dim: 64, Least: 4, Most: 16384, Haystacks: 8, Needles: 64}
}

func flags(set *flag.FlagSet, s *settings) {
	set.Uint64Var(&s.Seed, "seed", s.Seed, "seed of the keys, values and needles")
	set.IntVar(&s.Dim, "dim", s.Dim, "columns of a key and of a value")
	set.IntVar(&s.Least, "least", s.Least, "smallest number of keys")
	set.IntVar(&s.Most, "most", s.Most, "largest number of keys; the sizes double from -least up to it")
	set.IntVar(&s.Haystacks, "haystacks", s.Haystacks, "sets of keys for each size")
	set.IntVar(&s.Needles, "needles", s.Needles, "queries of each set of keys")
}

// sizes returns the numbers of keys, each twice the one before.
func (s *settings) sizes() (all []int) {
	for n := s.Least; n <= s.Most; n *= 2 {
		all = append(all, n)
	}
	return all
}

// search runs every method at every size. It returns the results by method and size.
func search(ctx context.Context, s settings, threads int, tell func(done int64, about string)) ([][]result, error) {
	if s.Dim < 1 || s.Least < 1 || s.Most < s.Least || s.Haystacks < 1 || s.Needles < 1 {
		return nil, fmt.Errorf("-dim %d -least %d -most %d -haystacks %d -needles %d: want at least 1 of each, and -most no less than -least", s.Dim, s.Least, s.Most, s.Haystacks, s.Needles)
	}
	on, team, err := program.On("flash", program.BestISA(), threads)
	if err != nil {
		return nil, err
	}
	defer team.Close()
	all := make([][]result, len(methods))
	for i, n := range s.sizes() {
		h := newHaystacks(s.Haystacks, s.Needles, n, s.Dim, rand.New(rand.NewPCG(s.Seed, uint64(n))))
		for j := range methods {
			if ctx.Err() != nil {
				return nil, program.ErrInterrupted
			}
			r, err := retrieve(&methods[j], h, team, on.Products)
			if err != nil {
				return nil, err
			}
			all[j] = append(all[j], r)
		}
		tell(int64(i+1), fmt.Sprintf("%d keys", n))
	}
	return all, nil
}

// draw draws the fraction of needles retrieved, and the distance of the output from their values.
func draw(path string, all [][]result) error {
	right := picture.Chart{Title: "Needles retrieved", X: "keys", Y: "fraction of needles", LogX: true, Low: 0, High: 1.02}
	wrong := picture.Chart{Title: "Distance of the output from the value", X: "keys", Y: "mean of 1 - cosine", LogX: true, Low: 0, High: 1.02}
	for i, results := range all {
		// Dashes let the line below show.
		a := picture.Curve{Name: methods[i].name, Dashed: methods[i].scale != 1}
		b := a
		for _, r := range results {
			a.X, a.Y = append(a.X, float64(r.n)), append(a.Y, r.right)
			b.X, b.Y = append(b.X, float64(r.n)), append(b.Y, r.err)
		}
		right.Curves, wrong.Curves = append(right.Curves, a), append(wrong.Curves, b)
	}
	left, err := right.Plot()
	if err != nil {
		return err
	}
	other, err := wrong.Plot()
	if err != nil {
		return err
	}
	left.Legend.YOffs = -1 * vg.Centimeter // below the lines at 1
	other.Legend = plot.NewLegend()        // the left chart has the legend of both
	return picture.Save(path, 28*vg.Centimeter, 11*vg.Centimeter, [][]*plot.Plot{{left, other}})
}

// write prints the table of the fraction of needles retrieved.
func write(out io.Writer, all [][]result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "keys\t")
	for _, r := range all[0] {
		fmt.Fprintf(w, "%d\t", r.n)
	}
	for i, results := range all {
		fmt.Fprintf(w, "\n%s\t", methods[i].name)
		for _, r := range results {
			fmt.Fprintf(w, "%.3f\t", r.right)
		}
	}
	fmt.Fprintln(w)
	return w.Flush()
}

// needle looks for needles in haystacks of growing size.
func needle(ctx context.Context, args []string, out, progress io.Writer) error {
	s, run, err := program.Begin("needle", args, defaults(), flags, progress)
	if err != nil {
		return err
	}
	tell, end := program.Progress(progress, "sizes", 0, int64(len(s.sizes())))
	all, err := search(ctx, s, run.Threads, tell)
	end()
	if err != nil {
		return err
	}
	if err := run.Open(); err != nil {
		return err
	}
	fmt.Fprintf(out, "Fraction of needles whose own value is the nearest of all to the output; dim %d, %d needles for each number of keys:\n", s.Dim, s.Haystacks*s.Needles)
	if err := write(out, all); err != nil {
		return err
	}
	if err := draw(run.Path("needle"), all); err != nil {
		return err
	}
	fmt.Fprintf(out, "curves: %s\n", run.Path("needle.svg"))
	return nil
}
