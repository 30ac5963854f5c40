package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"attnlab/examples/internal/program"
	"attnlab/nn"
)

// settings are everything that determines the trained weights.
type settings struct {
	Task   string
	Length int
	program.Training
}

// defaults returns settings that reach 95 % held-out accuracy in each task.
func defaults() settings {
	return settings{
		Task:     "brackets",
		Training: program.Training{Seed: 1, Steps: 1500, Batch: 64, Layers: 2, Dim: 64, Heads: 4, Rate: 2e-3, Kernel: "flash", ISA: program.BestISA()},
	}
}

func flags(set *flag.FlagSet, s *settings) {
	set.StringVar(&s.Task, "task", s.Task, "task to learn: "+strings.Join(taskNames, ", "))
	set.IntVar(&s.Length, "length", s.Length, "tokens in a sequence; 0 means the task's own length")
	s.Training.Flags(set)
}

// classifier is a model with its task and its training.
type classifier struct {
	settings
	data    *data
	model   *nn.Model
	on      nn.On
	trainer *nn.Trainer
}

// newClassifier returns an encoder with random weights and plans its training.
func newClassifier(s settings, on nn.On) (*classifier, error) {
	t, ok := tasks[s.Task]
	if !ok {
		return nil, fmt.Errorf("-task %s: no such task; choose %s", s.Task, strings.Join(taskNames, ", "))
	}
	if s.Length == 0 {
		s.Length = t.length
	}
	if s.Length < 8 || s.Length%2 == 1 && s.Task == "brackets" || s.Batch < 1 || s.Steps < 1 {
		return nil, fmt.Errorf("-length %d -batch %d -steps %d: want a length of 8 or more, an even number of brackets, and one or more sequences and steps", s.Length, s.Batch, s.Steps)
	}
	c := &classifier{settings: s, data: newData(t, s.Length, s.Seed), on: on}
	var err error
	c.model, err = nn.NewModel(len(t.letters), s.Length, len(t.classes), true, nn.Config{
		Layers: s.Layers, Dim: s.Dim, Heads: s.Heads, Act: nn.GELU, Bias: true, Mask: t.mask,
	}, rand.New(rand.NewPCG(s.Seed, 0)))
	if err != nil {
		return nil, err
	}
	if c.trainer, err = s.Trainer(c.model, on, s.Length); err != nil {
		return nil, err
	}
	c.trainer.Fill = c.data.train
	return c, nil
}

// An answer is the class that the model gives a held-out sequence, beside the true class.
type answer struct {
	sequence  string
	got, want string
}

// ask classifies batches of held-out sequences. It returns the number of sequences, the number of
// right answers, and the wrong answers.
func (c *classifier) ask(batches int) (asked, right int, wrong []answer, err error) {
	pass, err := c.model.Plan(c.on, c.Batch, c.Length)
	if err != nil {
		return 0, 0, nil, err
	}
	tokens, classes := make([]int32, c.Batch*c.Length), make([]int32, c.Batch)
	for b := range batches {
		c.data.ask(b, tokens, classes)
		logits := pass.Forward(tokens)
		for i, class := range classes {
			asked++
			if got := new(nn.Sampler).Choose(logits.Row(i)); got == class {
				right++
			} else {
				wrong = append(wrong, answer{c.data.write(tokens[i*c.Length:][:c.Length]), c.data.classes[got], c.data.classes[class]})
			}
		}
	}
	return asked, right, wrong, nil
}

// classify trains an encoder and tests it on held-out sequences.
func classify(ctx context.Context, args []string, out, progress io.Writer) error {
	s, run, err := program.Begin("classify", args, defaults(), flags, progress)
	if err != nil {
		return err
	}
	on, team, err := program.On(s.Kernel, s.ISA, run.Threads)
	if err != nil {
		return err
	}
	defer team.Close()
	c, err := newClassifier(s, on)
	if err != nil {
		return err
	}
	if err := run.Open(); err != nil {
		return err
	}
	c.trainer.Setup = run.Settings()
	begin := time.Now()
	if err := run.Train(ctx, c.trainer, s.Steps); err != nil {
		return err
	}
	took := time.Since(begin).Round(time.Second / 10)
	asked, right, wrong, err := c.ask(1 + 4095/s.Batch)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %d of %d held-out sequences right, %.2f %%; by chance %.2f %%\n", s.Task, right, asked, 100*float64(right)/float64(asked), 100/float64(len(c.data.classes)))
	fmt.Fprintf(out, "%d parameters, %d steps of %d sequences of %d; this run took %v\n", nn.Count(c.model.Params()), s.Steps, s.Batch, c.Length, took)
	for _, a := range wrong[:min(3, len(wrong))] {
		fmt.Fprintf(out, "wrong: %s is %s, the model answers %s\n", a.sequence, a.want, a.got)
	}
	fmt.Fprintf(out, "checkpoint and loss curve: %s\n", run.Dir)
	return nil
}
