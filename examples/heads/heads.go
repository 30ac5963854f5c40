package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"

	"attnlab/attn"
	"attnlab/examples/internal/picture"
	"attnlab/examples/internal/program"
	"attnlab/nn"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

// A layer is the attention weights of each head of one layer, over one text.
type layer struct {
	name     string
	text     string // that the heads attend to
	heads    []string
	patterns []*mat.Dense // weights of each head, [query][key]
}

// text is the input of the built layer. Its letters repeat.
const text = "abcabbacdabcdaab"

// sharp is the unscaled score of a match in a built head. All other scores are 0.
const sharp = 40

// A build describes a head that is built by hand: a query scores a key by the columns that both
// have set.
type build struct {
	name string
	// sets fills W_Q and W_K, whose rows are the letters followed by the positions.
	sets func(q, k nn.Mat, letters, positions int)
}

// builds are the built heads. The first two are the same.
var builds = []build{
	{"the one before", before},
	{"that again", before},
	{"the first", func(q, k nn.Mat, letters, positions int) {
		for i := range positions {
			q.Row(letters + i)[0] = sharp
		}
		k.Row(letters)[0] = 1
	}},
	{"the same letter", func(q, k nn.Mat, letters, _ int) {
		for c := range letters {
			q.Row(c)[c], k.Row(c)[c] = sharp, 1
		}
	}},
	{"everything", func(nn.Mat, nn.Mat, int, int) {}},
}

// before attends from each query to the previous position, and from the first query to itself.
func before(q, k nn.Mat, letters, positions int) {
	for i := range positions {
		q.Row(letters + i)[max(i-1, 0)], k.Row(letters + i)[i] = sharp, 1
	}
}

// built returns a layer of the heads in builds. A row of its input is the one-hot code of the
// letter, followed by that of the position.
func built(on nn.On) (*layer, error) {
	letters, positions := 4, len(text)
	dim := len(builds) * positions // each head has a column for each position
	a, err := nn.NewAttention("built", dim, len(builds), len(builds), false, rand.New(rand.NewPCG(1, 0)))
	if err != nil {
		return nil, err
	}
	l := &layer{name: "built", text: text}
	for h, b := range builds {
		q, k, _, _ := a.HeadWeights(h)
		q.Clear()
		k.Clear()
		b.sets(q, k, letters, positions)
		l.heads = append(l.heads, b.name)
	}
	x := nn.NewMat(positions, dim)
	for i, c := range text {
		x.Row(i)[c-'a'], x.Row(i)[letters+i] = 1, 1
	}
	w := &watcher{Kernel: on.Kernel}
	on.Kernel = w
	pass, _, err := a.Plan(on, nn.Shape{Batch: 1, Seq: positions, Dim: dim})
	if err != nil {
		return nil, err
	}
	pass.Forward(x)
	l.patterns = nn.Patterns(w.layers[0].weights, 0)
	return l, nil
}

// settings are everything that determines the trained layer.
type settings struct {
	Seed        uint64
	Steps       int64
	Kernel, ISA string
}

func defaults() settings {
	return settings{Seed: 1, Steps: 400, Kernel: "tiled", ISA: program.BestISA()}
}

func flags(set *flag.FlagSet, s *settings) {
	set.Uint64Var(&s.Seed, "seed", s.Seed, "seed of the weights and sequences")
	set.Int64Var(&s.Steps, "steps", s.Steps, "training steps")
	set.StringVar(&s.Kernel, "kernel", s.Kernel, "attention kernel; one that returns weights: tiled, naive")
	set.StringVar(&s.ISA, "isa", s.ISA, "instruction set")
}

// Shape of the trained model: one block that learns to name the first letter.
const (
	letters = 8
	length  = 16
	batch   = 32
	heads   = 4
)

// A reader is the model that learns to name the first letter, with its training.
type reader struct {
	model   *nn.Model
	on      nn.On
	trainer *nn.Trainer
}

// newReader returns a model with random weights and plans its training.
func newReader(s settings, on nn.On) (*reader, error) {
	m, err := nn.NewModel(letters, length, letters, true, nn.Config{Layers: 1, Dim: 32, Heads: heads, Act: nn.GELU, Bias: true}, rand.New(rand.NewPCG(s.Seed, 0)))
	if err != nil {
		return nil, err
	}
	r := &reader{model: m, on: on}
	r.trainer, err = nn.NewTrainer(m, on, batch, length, nn.NewAdam(m.Params(), .01), nn.Schedule{Rate: 5e-3, Least: 5e-4, Warmup: min(20, s.Steps/4), Steps: s.Steps})
	if err != nil {
		return nil, err
	}
	source := new(rand.PCG)
	draw := rand.New(source)
	r.trainer.Clip = 1
	r.trainer.Fill = func(step int64, tokens, first []int32) {
		source.Seed(s.Seed, uint64(step)+1)
		for i := range tokens {
			tokens[i] = int32(draw.IntN(letters))
		}
		for b := range first {
			first[b] = tokens[b*length]
		}
	}
	return r, nil
}

// look returns the attention weights of the model's heads over one sequence.
func (r *reader) look(name string) (*layer, error) {
	l := &layer{name: name}
	tokens := make([]int32, length)
	for i := range tokens {
		tokens[i] = int32(i * 5 % letters)
		l.text += string(rune('a' + tokens[i]))
	}
	for h := range heads {
		l.heads = append(l.heads, fmt.Sprint("head ", h+1))
	}
	w := &watcher{Kernel: r.on.Kernel}
	pass, err := r.model.Plan(nn.On{Kernel: w, Products: r.on.Products}, 1, length)
	if err != nil {
		return nil, err
	}
	pass.Forward(tokens)
	l.patterns = nn.Patterns(w.layers[0].weights, 0)
	return l, nil
}

// similarities returns the cosine similarity of each pair of heads.
func (l *layer) similarities() [][]float64 {
	all := make([][]float64, len(l.patterns))
	for i, p := range l.patterns {
		for _, q := range l.patterns {
			all[i] = append(all[i], 1-nn.Diversity([]*mat.Dense{p, q}))
		}
	}
	return all
}

// draw draws a row for each layer: the weights of each head, then the similarities between heads.
func draw(path string, layers []*layer) error {
	columns := 0
	for _, l := range layers {
		columns = max(columns, len(l.heads)+1)
	}
	var plots [][]*plot.Plot
	for _, l := range layers {
		row := make([]*plot.Plot, columns)
		entropies, places := nn.HeadEntropies(l.patterns), strings.Split(l.text, "")
		for h, p := range l.patterns {
			var weights [][]float64
			for i := range p.RawMatrix().Rows {
				weights = append(weights, p.RawRowView(i))
			}
			row[h] = picture.Matrix(fmt.Sprintf("%s: %s\nentropy %.2f", l.name, l.heads[h], entropies[h]), weights, places, places)
		}
		var numbers []string
		for h := range l.heads {
			numbers = append(numbers, fmt.Sprint(h+1))
		}
		row[columns-1] = picture.Matrix(fmt.Sprintf("%s: similarity\ndiversity %.2f", l.name, nn.Diversity(l.patterns)), l.similarities(), numbers, numbers)
		plots = append(plots, row)
	}
	return picture.Save(path, vg.Length(columns)*5.5*vg.Centimeter, vg.Length(len(layers))*6*vg.Centimeter, plots)
}

// write prints the diversity of each layer and the entropy of each head.
func write(out io.Writer, layers []*layer) {
	for _, l := range layers {
		fmt.Fprintf(out, "%s: diversity %.3f\n", l.name, nn.Diversity(l.patterns))
		for h, e := range nn.HeadEntropies(l.patterns) {
			fmt.Fprintf(out, "  %-16s entropy %.3f nats, effectively %.1f keys\n", l.heads[h], e, attn.EffectiveKeys(float32(e)))
		}
	}
}

// look shows what the heads attend to in a built layer, an untrained one and a trained one.
func look(ctx context.Context, args []string, out, progress io.Writer) error {
	s, run, err := program.Begin("heads", args, defaults(), flags, progress)
	if err != nil {
		return err
	}
	on, team, err := program.On(s.Kernel, s.ISA, run.Threads)
	if err != nil {
		return err
	}
	defer team.Close()
	first, err := built(on)
	if err != nil {
		return err
	}
	r, err := newReader(s, on)
	if err != nil {
		return err
	}
	untrained, err := r.look("untrained")
	if err != nil {
		return err
	}
	if err := run.Open(); err != nil {
		return err
	}
	r.trainer.Setup = run.Settings()
	if err := run.Train(ctx, r.trainer, s.Steps); err != nil {
		return err
	}
	trained, err := r.look("trained")
	if err != nil {
		return err
	}
	layers := []*layer{first, untrained, trained}
	write(out, layers)
	if err := draw(run.Path("heads"), layers); err != nil {
		return err
	}
	fmt.Fprintf(out, "pictures: %s\n", run.Path("heads.svg"))
	return nil
}
