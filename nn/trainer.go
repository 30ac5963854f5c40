package nn

import (
	"encoding/json"
	"fmt"
	"math"
)

// A Trainer trains a model step by step:
//
//	batch -> logits -> loss -> gradients, clipped -> the optimiser, at the rate of the schedule
//
// A step depends only on the parameters, the optimiser and the number of the step, if Fill does.
// Training that was saved after any step and loaded again therefore gives the same weights as
// training without interruption, on any team. A step allocates nothing.
type Trainer struct {
	// Fill writes the batch of a step. A negative target does not count.
	Fill   func(step int64, tokens, targets []int32)
	Clip   float64   // the largest norm of all gradients together; 0: no limit
	Noise  *Noise    // the Noise of the model's dropouts, or nil
	Setup  string    // describes the training; Load refuses a checkpoint with another Setup
	Losses []float64 // the loss of every step so far, before the step's change

	params          []*Param
	pass            *ModelPass
	criterion       *CrossEntropy
	optimiser       Optimiser
	schedule        Schedule
	tokens, targets []int32
}

// NewTrainer plans the training of a model on batches of batch sequences of seq tokens. The
// optimiser must be one for the model's parameters.
func NewTrainer(m *Model, on On, batch, seq int, o Optimiser, s Schedule) (*Trainer, error) {
	pass, err := m.Plan(on, batch, seq)
	if err != nil {
		return nil, err
	}
	rows := batch * seq
	if m.Pool {
		rows = batch
	}
	return &Trainer{
		Losses: make([]float64, 0, s.Steps), params: m.Params(), pass: pass, criterion: NewCrossEntropy(on, rows, m.Head.W.W.Cols),
		optimiser: o, schedule: s, tokens: make([]int32, batch*seq), targets: make([]int32, rows),
	}, nil
}

// Done returns the number of steps taken.
func (t *Trainer) Done() int64 {
	_, steps := t.optimiser.State()
	return *steps
}

// Step takes the next step. If the loss is NaN or infinite, it returns an error and changes
// nothing.
func (t *Trainer) Step() error {
	step := t.Done()
	t.Fill(step, t.tokens, t.targets)
	ClearGrads(t.params)
	if t.Noise != nil {
		t.Noise.Step, t.Noise.Train = uint64(step), true
		defer t.rest()
	}
	loss, _, dlogits := t.criterion.Loss(t.pass.Forward(t.tokens), t.targets)
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return fmt.Errorf("nn: the loss of step %d is %v: train at a lower rate, or clip gradients", step, loss)
	}
	t.pass.Backward(dlogits)
	if t.Clip > 0 {
		ClipGrads(t.params, t.Clip)
	}
	t.optimiser.Step(t.schedule.At(step))
	t.Losses = append(t.Losses, loss)
	return nil
}

// rest turns the dropouts off.
func (t *Trainer) rest() { t.Noise.Train = false }

// Save writes a checkpoint.
func (t *Trainer) Save(path string) error { return t.checkpoint().Save(path) }

// Load restores a checkpoint. If it belongs to another training, Load returns an error and changes
// nothing.
func (t *Trainer) Load(path string) error { return t.checkpoint().Load(path) }

func (t *Trainer) checkpoint() *Checkpoint { return &Checkpoint{t.params, t.optimiser, (*trained)(t)} }

// trained is the other data of a Trainer's checkpoint.
type trained Trainer

type trainedText struct {
	Setup  string
	Losses []float64
}

// MarshalJSON implements json.Marshaler.
func (t *trained) MarshalJSON() ([]byte, error) { return json.Marshal(trainedText{t.Setup, t.Losses}) }

// UnmarshalJSON implements json.Unmarshaler. It returns an error if the Setup differs.
func (t *trained) UnmarshalJSON(text []byte) error {
	var was trainedText
	if err := json.Unmarshal(text, &was); err != nil {
		return err
	}
	if was.Setup != t.Setup {
		return fmt.Errorf("the checkpoint has the setup %s, want %s", was.Setup, t.Setup)
	}
	t.Losses = append(t.Losses[:0], was.Losses...)
	return nil
}
