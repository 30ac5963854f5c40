package program

import (
	"flag"

	"attnlab/nn"
)

// Training is the settings that all trained transformers share. The shape of the sequences and what
// is learned are the program's own.
type Training struct {
	Seed               uint64
	Steps              int64
	Batch              int
	Layers, Dim, Heads int
	Rate               float64
	Kernel, ISA        string
}

// Flags declares the flags of the settings.
func (t *Training) Flags(set *flag.FlagSet) {
	set.Uint64Var(&t.Seed, "seed", t.Seed, "seed of the weights and of the training data")
	set.Int64Var(&t.Steps, "steps", t.Steps, "training steps")
	set.IntVar(&t.Batch, "batch", t.Batch, "sequences in a training step")
	set.IntVar(&t.Layers, "layers", t.Layers, "blocks of the model")
	set.IntVar(&t.Dim, "dim", t.Dim, "columns of the model")
	set.IntVar(&t.Heads, "heads", t.Heads, "attention heads")
	set.Float64Var(&t.Rate, "rate", t.Rate, "highest learning rate")
	set.StringVar(&t.Kernel, "kernel", t.Kernel, "attention kernel: flash, tiled, naive")
	set.StringVar(&t.ISA, "isa", t.ISA, "instruction set")
}

// Trainer plans the training of a model on sequences of length tokens. It uses Adam with a weight
// decay of 0.01 and clips gradients at norm 1. The learning rate rises for 50 steps, or for a
// quarter of all steps if that is less, and then falls to a twentieth.
func (t *Training) Trainer(m *nn.Model, on nn.On, length int) (*nn.Trainer, error) {
	schedule := nn.Schedule{Rate: t.Rate, Least: t.Rate / 20, Warmup: min(50, t.Steps/4), Steps: t.Steps}
	trainer, err := nn.NewTrainer(m, on, t.Batch, length, nn.NewAdam(m.Params(), .01), schedule)
	if err != nil {
		return nil, err
	}
	trainer.Clip = 1
	return trainer, nil
}
