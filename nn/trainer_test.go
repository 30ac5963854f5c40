package nn

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/kernels"
	"attnlab/kernels/asm"
)

// copying returns a Trainer of a small language model with dropout that learns to repeat each
// token. Its batches depend only on the number of the step.
func copying(t *testing.T, workers int, setup string) *Trainer {
	t.Helper()
	r, noise := rand.New(rand.NewPCG(51, 1)), &Noise{Seed: 7}
	m, err := NewModel(5, 8, 5, false, Config{Layers: 1, Dim: 16, Heads: 2, Act: GELU, Bias: true, Dropout: 0.1, Noise: noise, Mask: attn.Causal()}, r)
	if err != nil {
		t.Fatal(err)
	}
	team := attn.NewTeam(workers)
	t.Cleanup(team.Close)
	on := On{Kernel: kernels.All()[0], Products: NewMultiplier(asm.Levels()[0].Ops, team)}
	trainer, err := NewTrainer(m, on, 4, 8, NewAdam(m.Params(), 0.01), Schedule{Rate: 0.02, Warmup: 5, Steps: 40})
	if err != nil {
		t.Fatal(err)
	}
	source := new(rand.PCG)
	draw := rand.New(source)
	trainer.Clip, trainer.Noise, trainer.Setup = 1, noise, setup
	trainer.Fill = func(step int64, tokens, targets []int32) {
		source.Seed(3, uint64(step))
		for i := range tokens {
			tokens[i] = int32(draw.IntN(5))
			targets[i] = tokens[i]
		}
	}
	return trainer
}

func steps(t *testing.T, trainer *Trainer, until int64) {
	t.Helper()
	for trainer.Done() < until {
		if err := trainer.Step(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTrainer checks that training that is saved at a step and continued elsewhere, on another
// team, ends in the same checkpoint as training without interruption, bit for bit.
func TestTrainer(t *testing.T) {
	dir := t.TempDir()
	saved := func(name string, trainer *Trainer) string {
		path := filepath.Join(dir, name)
		if err := trainer.Save(path); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	whole := copying(t, 1, "a")
	steps(t, whole, 40)
	if first, last := whole.Losses[0], whole.Losses[39]; len(whole.Losses) != 40 || last > first/2 {
		t.Errorf("%d losses, from %v to %v: want 40, and half", len(whole.Losses), first, last)
	}
	want := saved("whole", whole)
	for _, at := range []int64{0, 1, 17, 40} {
		begun := copying(t, 2, "a")
		steps(t, begun, at)
		saved("part", begun)
		again := copying(t, 1, "a")
		if err := again.Load(filepath.Join(dir, "part")); err != nil {
			t.Fatal(err)
		}
		steps(t, again, 40)
		if saved("again", again) != want {
			t.Errorf("interrupted after %d steps, training came to another checkpoint", at)
		}
	}

	other := copying(t, 1, "b")
	if err := other.Load(filepath.Join(dir, "whole")); err == nil || !strings.Contains(err.Error(), "the setup a, want b") || other.Done() != 0 {
		t.Errorf("the checkpoint of another training: %v, and %d steps done", err, other.Done())
	}
}

func TestTrainerStep(t *testing.T) {
	trainer := copying(t, 2, "")
	steps(t, trainer, 2)
	if n := testing.AllocsPerRun(5, func() { _ = trainer.Step() }); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
	if trainer.Noise.Train {
		t.Error("dropouts go on after a step")
	}
	done, w := trainer.Done(), trainer.params[0].W.Data
	for i := range w {
		w[i] = float32(math.NaN())
	}
	if err := trainer.Step(); err == nil || !strings.Contains(err.Error(), "lower rate") {
		t.Errorf("a loss that is no number: %v", err)
	}
	if trainer.Done() != done {
		t.Error("a step without a loss counts")
	}
}
