package main

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"attnlab/attn"
	"attnlab/examples/internal/program"
	"attnlab/nn"
)

// settings are everything besides the text that determines the trained weights.
type settings struct {
	Context int
	Dropout float64
	program.Training
}

func defaults() settings {
	return settings{
		Context: 128, Dropout: .1,
		Training: program.Training{Seed: 1, Steps: 1000, Batch: 16, Layers: 3, Dim: 128, Heads: 4, Rate: 2e-3, Kernel: "flash", ISA: program.BestISA()},
	}
}

func flags(set *flag.FlagSet, s *settings) {
	set.IntVar(&s.Context, "context", s.Context, "characters in a sequence")
	set.Float64Var(&s.Dropout, "dropout", s.Dropout, "fraction of each layer's output that is dropped in training")
	s.Training.Flags(set)
}

// saying describes the text that the trained model writes.
type saying struct {
	root        string
	prompt      string
	length      int
	temperature float64
	topK        int
	topP        float64
	seed        uint64
}

func (y *saying) flags(set *flag.FlagSet) {
	set.StringVar(&y.root, "root", ".", "`folder` in the checkout whose documentation is learned")
	set.StringVar(&y.prompt, "prompt", "A kernel ", "`text` that the model continues")
	set.IntVar(&y.length, "length", 400, "characters to write; 0 means none")
	set.Float64Var(&y.temperature, "temperature", .7, "sampling temperature; 0 means the most likely character")
	set.IntVar(&y.topK, "top-k", 0, "sample from this many of the most likely characters; 0 means all")
	set.Float64Var(&y.topP, "top-p", .95, "sample from the most likely characters whose probabilities sum to this; 0 means all")
	set.Uint64Var(&y.seed, "sample-seed", 1, "seed of the sampling")
}

// An author is a model of text with its training.
type author struct {
	settings
	vocabulary
	train, heldOut []int32
	model          *nn.Model
	on             nn.On
	trainer        *nn.Trainer
}

// rare is the least number of times that a character of the vocabulary is in the text.
const rare = 8

// newAuthor returns a model with random weights for a text and plans its training.
func newAuthor(s settings, train, heldOut string, on nn.On) (*author, error) {
	if s.Batch < 1 || s.Context < 2 || s.Steps < 1 || s.Dropout < 0 || s.Dropout >= 1 {
		return nil, fmt.Errorf("-batch %d -context %d -steps %d -dropout %v: want -batch and -steps of 1 or more, -context of 2 or more, and -dropout of 0 or more and less than 1", s.Batch, s.Context, s.Steps, s.Dropout)
	}
	a := &author{settings: s, vocabulary: newVocabulary(train, rare), on: on}
	a.train, a.heldOut = a.encode(train), a.encode(heldOut)
	if len(a.train) <= s.Context+1 || len(a.heldOut) < 2 {
		return nil, errShort
	}
	if s.Heads < 1 || s.Dim%(2*s.Heads) != 0 {
		return nil, fmt.Errorf("-dim %d -heads %d: want heads of an even number of columns, because RoPE rotates pairs", s.Dim, s.Heads)
	}
	noise := &nn.Noise{Seed: s.Seed}
	cos, sin := attn.RopeTables(10000, s.Context, s.Dim/s.Heads)
	var err error
	a.model, err = nn.NewModel(len(a.vocabulary), 0, len(a.vocabulary), false, nn.Config{
		Layers: s.Layers, Dim: s.Dim, Heads: s.Heads, Act: nn.GELU, RMS: true, Dropout: s.Dropout, Noise: noise, Mask: attn.Causal(),
		Score: attn.Score{Rope: attn.RopeHalves}, Terms: attn.Operands{Cos: cos, Sin: sin},
	}, rand.New(rand.NewPCG(s.Seed, 0)))
	if err != nil {
		return nil, err
	}
	if a.trainer, err = s.Trainer(a.model, on, s.Context); err != nil {
		return nil, err
	}
	a.trainer.Noise, a.trainer.Fill = noise, a.batch()
	return a, nil
}

// batch returns the function that draws training batches: sequences from random places in the text,
// each target being the next character.
func (a *author) batch() func(step int64, tokens, targets []int32) {
	source := new(rand.PCG)
	r, n := rand.New(source), a.Context
	return func(step int64, tokens, targets []int32) {
		source.Seed(a.Seed, uint64(step)+1)
		for b := range a.Batch {
			from := r.IntN(len(a.train) - n)
			copy(tokens[b*n:][:n], a.train[from:])
			copy(targets[b*n:][:n], a.train[from+1:])
		}
	}
}

// loss returns the mean of -log p over all held-out characters but the first. Each is predicted
// from the characters before it in its sequence of Context characters.
func (a *author) loss() (float64, error) {
	n := a.Context
	pass, err := a.model.Plan(a.on, a.Batch, n)
	if err != nil {
		return 0, err
	}
	criterion := nn.NewCrossEntropy(a.on, a.Batch*n, len(a.vocabulary))
	tokens, targets := make([]int32, a.Batch*n), make([]int32, a.Batch*n)
	sum, all := 0.0, len(a.heldOut)-1
	for from := 0; from < all; from += len(tokens) {
		here := min(len(tokens), all-from)
		clear(tokens[copy(tokens, a.heldOut[from:all]):])
		for i := copy(targets, a.heldOut[from+1:]); i < len(targets); i++ {
			targets[i] = -1
		}
		mean, _, _ := criterion.Loss(pass.Forward(tokens), targets)
		sum += mean * float64(here)
	}
	return sum / float64(all), nil
}

// goOn continues a text through the KV cache: a character costs one row. When the cache is full, it
// starts a new one with the last half of its context.
func (a *author) goOn(beginning []int32, length int, s *nn.Sampler) ([]int32, error) {
	text := slices.Clone(beginning)
	for len(text) < len(beginning)+length {
		g, err := a.model.Generate(a.on, a.Context, min(a.Context, 32), attn.F32, 0)
		if err != nil {
			return nil, err
		}
		if err := g.Read(text[max(0, len(text)-max(1, a.Context/2)):]); err != nil {
			return nil, err
		}
		for len(text) < len(beginning)+length && g.Len() < a.Context {
			next, err := g.Next(s)
			if err != nil {
				return nil, err
			}
			text = append(text, next)
		}
	}
	return text[len(beginning):], nil
}

// goOnWhole returns what goOn writes greedily, up to Context characters. It uses no cache: each
// character takes a pass over the whole text.
func (a *author) goOnWhole(beginning []int32, length int) ([]int32, error) {
	text := slices.Clone(beginning)
	pass, err := a.model.Plan(a.on, 1, len(beginning)+length)
	if err != nil {
		return nil, err
	}
	for range length {
		text = append(text, new(nn.Sampler).Choose(pass.Forward(text).Row(len(text)-1)))
	}
	return text[len(beginning):], nil
}

// texts returns the text that a run learns, and its held-out text. A new run takes them from the
// repository; a resumed run reads those it began with.
func texts(run *program.Run, root string) (train, heldOut string, err error) {
	if run.Resume {
		var sides [2][]byte
		for i, file := range []string{trainFile, heldOutFile} {
			if sides[i], err = os.ReadFile(run.Path(file)); err != nil {
				return "", "", err
			}
		}
		return string(sides[0]), string(sides[1]), nil
	}
	if root, err = findRoot(root); err != nil {
		return "", "", err
	}
	text, err := documentation(root)
	if err != nil {
		return "", "", err
	}
	train, heldOut = split(text, 2000)
	return train, heldOut, nil
}

// charlm trains a model on the repository's documentation, compares it with counting pairs of
// characters, and lets it write.
func charlm(ctx context.Context, args []string, out, progress io.Writer) error {
	var say saying
	s, run, err := program.Begin("charlm", args, defaults(), func(set *flag.FlagSet, s *settings) {
		flags(set, s)
		say.flags(set)
	}, progress)
	if err != nil {
		return err
	}
	train, heldOut, err := texts(run, say.root)
	if err != nil {
		return err
	}
	on, team, err := program.On(s.Kernel, s.ISA, run.Threads)
	if err != nil {
		return err
	}
	defer team.Close()
	a, err := newAuthor(s, train, heldOut, on)
	if err != nil {
		return err
	}
	prompt := a.encode(say.prompt)
	if len(prompt) == 0 || say.length < 0 {
		return fmt.Errorf("-prompt %q -length %d: want a prompt of at least one character, and a length of 0 or more", say.prompt, say.length)
	}
	if err := run.Open(); err != nil {
		return err
	}
	if !run.Resume {
		for file, text := range map[string]string{trainFile: train, heldOutFile: heldOut} {
			if err := os.WriteFile(run.Path(file), []byte(text), 0o666); err != nil {
				return err
			}
		}
	}
	baseline := bigram(a.train, a.heldOut, len(a.vocabulary))
	run.Levels = []program.Level{{Name: "pairs", Y: baseline}}
	a.trainer.Setup = fmt.Sprintf("%s of the text %x", run.Settings(), sha256.Sum256([]byte(train+heldOut)))
	begin := time.Now()
	if err := run.Train(ctx, a.trainer, s.Steps); err != nil {
		return err
	}
	took := time.Since(begin).Round(time.Second / 10)
	loss, err := a.loss()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d characters to learn, %d held out, a vocabulary of %d; %d parameters, %d steps of %d sequences of %d characters; this run took %v\n",
		len(a.train), len(a.heldOut), len(a.vocabulary), nn.Count(a.model.Params()), s.Steps, s.Batch, s.Context, took)
	fmt.Fprintf(out, "held-out loss: %.4f nats per character; counting pairs: %.4f\n", loss, baseline)
	if err := a.speak(&say, prompt, out); err != nil {
		return err
	}
	fmt.Fprintf(out, "checkpoint, text and loss curve: %s\nto write again: go run ./examples/charlm -resume -o %s -prompt %q\n", run.Dir, run.Dir, say.prompt)
	return nil
}

// speak reports whether greedy decoding writes the same with and without the cache, and then lets
// the model write.
func (a *author) speak(say *saying, prompt []int32, out io.Writer) error {
	short := prompt[max(0, len(prompt)-max(1, a.Context/2)):]
	n := a.Context - len(short)
	cached, err := a.goOn(short, n, new(nn.Sampler))
	if err != nil {
		return err
	}
	whole, err := a.goOnWhole(short, n)
	if err != nil {
		return err
	}
	verdict := "the same"
	if !slices.Equal(cached, whole) {
		verdict = "NOT the same"
	}
	fmt.Fprintf(out, "%d characters by greedy decoding, through the cache and by full passes: %s\n", n, verdict)
	if say.length == 0 {
		return nil
	}
	text, err := a.goOn(prompt, say.length, &nn.Sampler{
		Temperature: say.temperature, TopK: say.topK, TopP: say.topP, Rand: rand.New(rand.NewPCG(say.seed, 0)),
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%s%s\n\n", a.decode(prompt), a.decode(text))
	return nil
}
