package program

import (
	"flag"

	"attnlab/nn"
)

// Training is what settings have in common where a model of blocks is trained: all that its weights
// depend on, besides what it is and what it learns.
type Training struct {
	Seed               uint64
	Steps              int64
	Batch              int
	Layers, Dim, Heads int
	Rate               float64
	Kernel, ISA        string
}

// Flags declares them.
func (t *Training) Flags(set *flag.FlagSet) {
	set.Uint64Var(&t.Seed, "seed", t.Seed, "of weights, and of what is drawn in training")
	set.Int64Var(&t.Steps, "steps", t.Steps, "of training")
	set.IntVar(&t.Batch, "batch", t.Batch, "sequences in a step")
	set.IntVar(&t.Layers, "layers", t.Layers, "blocks of the model")
	set.IntVar(&t.Dim, "dim", t.Dim, "numbers in a row")
	set.IntVar(&t.Heads, "heads", t.Heads, "of attention")
	set.Float64Var(&t.Rate, "rate", t.Rate, "learning rate, the highest")
	set.StringVar(&t.Kernel, "kernel", t.Kernel, "of attention: flash, tiled, naive")
	set.StringVar(&t.ISA, "isa", t.ISA, "instruction set")
}

// Trainer plans the training of a model on sequences of so many tokens: by Adam with a decay of
// .01, gradients clipped at 1, at a rate that climbs for 50 steps, or a quarter of all, and falls
// to a twentieth.
func (t *Training) Trainer(m *nn.Model, on nn.On, length int) (*nn.Trainer, error) {
	schedule := nn.Schedule{Rate: t.Rate, Least: t.Rate / 20, Warmup: min(50, t.Steps/4), Steps: t.Steps}
	trainer, err := nn.NewTrainer(m, on, t.Batch, length, nn.NewAdam(m.Params(), .01), schedule)
	if err != nil {
		return nil, err
	}
	trainer.Clip = 1
	return trainer, nil
}
