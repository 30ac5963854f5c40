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

// A method is a way to retrieve a value by its key.
type method struct {
	name   string
	op     attn.Op
	linear attn.Linear
	scale  float64 // of products, in units of 1/sqrt(dim)
}

// The methods: softmax as it is, and sharper by two; linear attention with each of its feature
// maps, the identity without a denominator, which could be 0.
var methods = []method{
	{name: "softmax", scale: 1},
	{name: "softmax, scale x 2", scale: 2},
	{name: "linear, elu+1", op: attn.OpLinear, linear: attn.Linear{Feature: attn.EluPlusOne}, scale: 1},
	{name: "linear, relu+1", op: attn.OpLinear, linear: attn.Linear{Feature: attn.ReluPlusOne}, scale: 1},
	{name: "linear, identity", op: attn.OpLinear, linear: attn.Linear{Feature: attn.Identity, Unnormalised: true}, scale: 1},
}

// problem is what the kernel of a method is asked.
func (m *method) problem(haystacks, needles, n, dim int) attn.Problem {
	p := attn.Problem{Op: m.op, Linear: m.linear, Batch: haystacks, SeqQ: needles, SeqKV: n, HeadsQ: 1, HeadsKV: 1, Dim: dim, DimV: dim}
	p.Score.Scale = m.scale / math.Sqrt(float64(dim))
	return p
}

// A haystack is n keys with their values, and needles: queries each of which is one of the keys,
// whose value is asked for.
type haystack struct {
	q, k, v attn.Tensor
	planted []int // by batch and query: which key
}

// newHaystacks makes several. Keys are random directions, as long as rows of unit variance are
// (sqrt(dim)); values are random directions of length 1.
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

// direction fills a row with a random direction of some length.
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

// A result is what a method retrieved.
type result struct {
	n     int
	right float64 // the part of needles whose value is the nearest of all to what came out
	err   float64 // 1 - the mean cosine between their value and what came out
}

// retrieve asks for every needle, and looks which of all values is nearest in direction to what
// comes out.
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

// rows are those of one batch entry of a fresh tensor with one head.
func rows(t *attn.Tensor, b int) nn.Mat {
	return nn.Mat{Data: t.Data[b*t.SB:][:t.S*t.D], Rows: t.S, Cols: t.D, Stride: t.SS}
}

// settings are what the figures depend on.
type settings struct {
	Seed               uint64
	Dim, Least, Most   int
	Haystacks, Needles int
}

func defaults() settings {
	return settings{Seed: 1, Dim: 64, Least: 4, Most: 16384, Haystacks: 8, Needles: 64}
}

func flags(set *flag.FlagSet, s *settings) {
	set.Uint64Var(&s.Seed, "seed", s.Seed, "of keys, values and needles")
	set.IntVar(&s.Dim, "dim", s.Dim, "numbers in a key and in a value")
	set.IntVar(&s.Least, "least", s.Least, "the fewest keys")
	set.IntVar(&s.Most, "most", s.Most, "the most keys; there are as many twice, and again, from the fewest on")
	set.IntVar(&s.Haystacks, "haystacks", s.Haystacks, "sets of keys of each size")
	set.IntVar(&s.Needles, "needles", s.Needles, "keys asked for in each")
}

// sizes are numbers of keys, each twice the one before.
func (s *settings) sizes() (all []int) {
	for n := s.Least; n <= s.Most; n *= 2 {
		all = append(all, n)
	}
	return all
}

// search runs every method at every size: results by method, then by size.
func search(ctx context.Context, s settings, threads int, tell func(done int64, about string)) ([][]result, error) {
	if s.Dim < 1 || s.Least < 1 || s.Most < s.Least || s.Haystacks < 1 || s.Needles < 1 {
		return nil, fmt.Errorf("-dim %d -least %d -most %d -haystacks %d -needles %d: want one or more of each, and the most no less than the least", s.Dim, s.Least, s.Most, s.Haystacks, s.Needles)
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

// draw draws what part is retrieved, and how far off it is.
func draw(path string, all [][]result) error {
	right := picture.Chart{Title: "The right one of n values", X: "keys", Y: "part of needles", LogX: true, Low: 0, High: 1.02}
	wrong := picture.Chart{Title: "How far off: 1 - cosine", X: "keys", Y: "mean of needles", LogX: true, Low: 0, High: 1.02}
	for i, results := range all {
		a := picture.Curve{Name: methods[i].name, Dashed: methods[i].scale != 1} // so that the one below shows
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
	left.Legend.YOffs = -1 * vg.Centimeter // below the lines of those that retrieve all
	other.Legend = plot.NewLegend()        // that of the other picture serves both
	return picture.Save(path, 28*vg.Centimeter, 11*vg.Centimeter, [][]*plot.Plot{{left, other}})
}

// write is the table of what part is retrieved.
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

// needle looks for needles in haystacks that grow.
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
	fmt.Fprintf(out, "The part of needles for which the nearest of all values to what came out is the right one; dim %d, %d needles a number:\n", s.Dim, s.Haystacks*s.Needles)
	if err := write(out, all); err != nil {
		return err
	}
	if err := draw(run.Path("needle"), all); err != nil {
		return err
	}
	fmt.Fprintf(out, "curves: %s\n", run.Path("needle.svg"))
	return nil
}
