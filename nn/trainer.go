package nn

import (
	"encoding/json"
	"fmt"
	"math"
)

// A Trainer trains a model, a step at a time:
//
//	batch -> logits -> loss -> gradients, clipped -> the optimiser, at the rate of the schedule
//
// What a step does follows from the parameters, the optimiser and the number of the step alone, if
// the batch that Fill makes does. So training that was saved after any step and loaded again comes
// to the same weights as training that went on, on any team. A step allocates nothing.
type Trainer struct {
	Fill   func(step int64, tokens, targets []int32) // makes the batch of a step; a negative target does not count
	Clip   float64                                   // the largest norm of all gradients together; 0: any
	Noise  *Noise                                    // of the model's dropouts, if it has some
	Setup  string                                    // all that the training depends on, as text: a checkpoint of another one is refused
	Losses []float64                                 // of every step so far, before the step changed anything

	params          []*Param
	pass            *ModelPass
	criterion       *CrossEntropy
	optimiser       Optimiser
	schedule        Schedule
	tokens, targets []int32
}

// NewTrainer plans the training of a model on batches of so many sequences of so many tokens. The
// optimiser must be of the model's parameters.
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

// Done is the number of steps taken.
func (t *Trainer) Done() int64 {
	_, steps := t.optimiser.State()
	return *steps
}

// Step takes the next one. If the loss is no number, it changes nothing and says so.
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

// rest ends the dropouts' part in a step.
func (t *Trainer) rest() { t.Noise.Train = false }

// Save writes a checkpoint.
func (t *Trainer) Save(path string) error { return t.checkpoint().Save(path) }

// Load goes to where a checkpoint was saved. If it is of another training, the error says so, and
// nothing has changed.
func (t *Trainer) Load(path string) error { return t.checkpoint().Load(path) }

func (t *Trainer) checkpoint() *Checkpoint { return &Checkpoint{t.params, t.optimiser, (*trained)(t)} }

// trained is what a checkpoint keeps of a Trainer besides parameters and optimiser.
type trained Trainer

type trainedText struct {
	Setup  string
	Losses []float64
}

// MarshalJSON writes it.
func (t *trained) MarshalJSON() ([]byte, error) { return json.Marshal(trainedText{t.Setup, t.Losses}) }

// UnmarshalJSON reads it, if it is of the same training.
func (t *trained) UnmarshalJSON(text []byte) error {
	var was trainedText
	if err := json.Unmarshal(text, &was); err != nil {
		return err
	}
	if was.Setup != t.Setup {
		return fmt.Errorf("it is of a training by %s, and this one is by %s", was.Setup, t.Setup)
	}
	t.Losses = append(t.Losses[:0], was.Losses...)
	return nil
}
