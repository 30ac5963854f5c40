package harness

import (
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"slices"
	"time"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/attn/oracle"
	"attnlab/harness/run"
)

// A Workload is the work at a point, before anything is allocated for it. Everything else in this
// package measures workloads and knows no kernel.
type Workload struct {
	Point run.Point
	// Count returns the work of one call. It reads every element of a mask.
	Count func() (attn.Count, error)
	// Operands and Scratch are the bytes that a prepared and planned job holds.
	Operands, Scratch int64
	// Prepare allocates the inputs and fills them.
	Prepare func() (Job, error)
}

// A Job is a prepared workload.
type Job interface {
	// Plan decides and allocates. It is called once, before the methods below.
	Plan() error
	// Run makes the calls and returns the time they took, without copies to and from another
	// process.
	Run(calls int) (Elapsed, error)
	// Check compares rows of the last call's answer with the oracle.
	Check(rows int, seed uint64) (oracle.Verdict, error)
	// Team returns the workers that the job runs on. The probes run on them, too.
	Team() *attn.Team
	// Reads returns the memory that a call reads, for the bandwidth probe. Updates returns the
	// memory that a call reads and writes back, which is nil for most jobs: it is what a job is
	// judged by that has some.
	Reads() []float32
	Updates() []float32
	// Scratch returns the bytes that the job holds besides its operands.
	Scratch() int64
	Close() error
}

// Attention returns the workload of a kernel at a point. The error says what is wrong with the
// point, or what the kernel does not support.
func Attention(k attn.Kernel, at run.Point) (*Workload, error) {
	p, err := at.Problem()
	if err != nil {
		return nil, err
	}
	n, err := cases.SlabLen(p, at.Layout)
	if err != nil {
		return nil, err
	}
	if p.Score.Rope != attn.NoRope && p.SeqQ > p.SeqKV && !p.Lengths && p.Mask.Align == attn.BottomRight {
		return nil, fmt.Errorf("rope: %d queries are before the first of %d keys, where there are no angles; use --mask causal-topleft, or no more queries than keys", p.SeqQ-p.SeqKV, p.SeqKV)
	}
	scratch, err := k.Check(p, at.Threads)
	if err != nil {
		return nil, err
	}
	if at.Alone() != nil {
		if scratch, err = checkAlone(k, p, at); err != nil {
			return nil, err
		}
	}
	state := 0
	if at.Decodes() {
		if at.Alone() != nil {
			return nil, fmt.Errorf("ragged-alone: rule %s with one token of each sequence; leave ragged-alone out, as such sequences do not differ", at.Rule)
		}
		state = p.StateLen()
	}
	grads := 0
	if p.Want&attn.WantGrad != 0 {
		a := cases.Outline(p)
		if err := at.Arrange(&p, a); err != nil {
			return nil, err
		}
		grads = cases.GradsLen(p, a, at.Layout)
	}
	return &Workload{
		Point: at, Operands: 4*int64(n+grads) + maskBytes(&p), Scratch: scratch,
		Count: func() (attn.Count, error) {
			a := cases.Outline(p)
			err := at.Arrange(&p, a)
			c := ofPass(at.Pass, p.Count(a))
			c.Bytes += 8 * int64(state) // read and written
			return c, err
		},
		Prepare: func() (Job, error) {
			slab := attn.Alloc[float32](n + grads)
			return prepare(k, at, p, slab[:n], slab[n:])
		},
	}, nil
}

// ofPass returns the work of a pass: its operations for Flop, and its bytes, given those of the
// forward pass. The backward pass reads the operands, the output and its gradient, and writes a
// gradient for each operand.
func ofPass(pass string, c attn.Count) attn.Count {
	switch pass {
	case "backward":
		c.Flop, c.Bytes = c.Back, 2*c.Bytes
	case "both":
		c.Flop, c.Bytes = c.Flop+c.Back, 3*c.Bytes
	}
	return c
}

// maskBytes returns the memory of an element mask, which is not in the slab.
func maskBytes(p *attn.Problem) int64 {
	switch p.Mask.Bitmap {
	case attn.BoolBitmap:
		return int64(p.SeqQ) * int64(p.SeqKV)
	case attn.PackedBitmap:
		return int64(p.SeqQ) * int64((p.SeqKV+63)/64) * 8
	}
	return 0
}

// InputSeed returns the seed of a point's inputs. Points that differ only in kernel and instruction
// set have one seed.
func InputSeed(at run.Point) uint64 {
	h := fnv.New64a()
	io.WriteString(h, at.Group())
	return h.Sum64()
}

// attention is the Job of one kernel.
type attention struct {
	kernel attn.Kernel
	at     run.Point
	p      attn.Problem
	args   *attn.Args
	plan   attn.Plan
	team   *attn.Team
	slab   []float32
	state  []float32 // StateIn and StateOut of a point that decodes by a rule

	// The backward pass has gradients, and the same plan as back. Both are nil for a forward pass.
	grads *attn.Grads
	back  attn.Differentiable
}

// prepare lays out the operands in one slab, and the gradients in another. If the point decodes by
// a rule, every call updates a state in place, which begins as zeros. Other calls have no state.
func prepare(k attn.Kernel, at run.Point, p attn.Problem, slab, gradSlab []float32) (Job, error) {
	args, err := cases.NewArgs(p, at.Layout, slab)
	if err != nil {
		return nil, err
	}
	if err := at.Arrange(&p, args); err != nil {
		return nil, err
	}
	if err := cases.Fill(at.Data, p, args, InputSeed(at)); err != nil {
		return nil, err
	}
	if err := at.SetGates(&p, args); err != nil {
		return nil, err
	}
	poison(args)
	var state []float32
	if at.Decodes() {
		state = args.StateIn
		clear(state)
	}
	args.StateIn, args.StateOut = state, state
	j := &attention{kernel: k, at: at, p: p, args: args, team: attn.NewTeam(at.Threads), slab: slab, state: state}
	if p.Want&attn.WantGrad != 0 {
		if j.grads, err = cases.NewGrads(p, args, at.Layout, gradSlab); err != nil {
			return nil, err
		}
		cases.FillGrads(j.grads, InputSeed(at))
		if p.Want&attn.WantLSE == 0 { // only a named by-product has an incoming gradient
			j.grads.LSE = attn.Tensor{}
		}
	}
	return j, nil
}

func (j *attention) Plan() (err error) {
	if j.at.Alone() != nil {
		j.plan, err = planAlone(j.kernel, j.p, j.at, j.args, j.team)
	} else {
		j.plan, err = j.kernel.Plan(j.p, j.team)
	}
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	if j.grads == nil {
		if r, ok := j.plan.(attn.Remote); ok {
			if err := r.Load(j.args); err != nil {
				return fmt.Errorf("load: %w", err)
			}
		}
		return nil
	}
	var ok bool
	if j.back, ok = j.plan.(attn.Differentiable); !ok {
		return fmt.Errorf("%w: the backward pass of this plan", attn.ErrUnsupported)
	}
	j.plan.Forward(j.args) // the backward pass reads its outputs
	if r, ok := j.plan.(attn.RemoteBackward); ok {
		if err := r.LoadGrads(j.args, j.grads); err != nil {
			return fmt.Errorf("load gradients: %w", err)
		}
	}
	return nil
}

// poison fills outputs with NaN, so that an element that the kernel does not write is wrong even
// where 0 is right.
func poison(a *attn.Args) {
	nan := float32(math.NaN())
	cases.Outputs(a, func(_ string, t *attn.Tensor) {
		cases.Rows(t, func(_, _, _ int, row []float32) {
			for i := range row {
				row[i] = nan
			}
		})
	})
}

func (j *attention) Run(calls int) (Elapsed, error) {
	if r := remote(j); r != nil {
		return j.runRemote(r, calls)
	}
	return Time(j.team.Workers(), func() {
		for range calls {
			if j.at.Pass != "backward" {
				j.plan.Forward(j.args)
			}
			if j.back != nil {
				j.back.Backward(j.args, j.grads)
			}
		}
	}), nil
}

// runRemote is Run for a plan whose calls run in another process.
func (j *attention) runRemote(r attn.Remote, calls int) (e Elapsed, err error) {
	if j.at.Pass != "backward" {
		e.CPU, e.Wall, err = r.Run(calls)
	}
	if b, ok := r.(attn.RemoteBackward); ok && j.back != nil && err == nil {
		var cpu, wall time.Duration
		cpu, wall, err = b.RunBackward(calls)
		e.CPU, e.Wall = e.CPU+cpu, e.Wall+wall
	}
	return e, err
}

func (j *attention) Check(rows int, seed uint64) (oracle.Verdict, error) {
	judged := *j.args
	if len(j.state) > 0 { // the oracle needs the state before the call that it judges
		judged.StateIn = slices.Clone(j.state)
		if _, err := j.Run(1); err != nil {
			return oracle.Verdict{}, err
		}
	}
	if r, ok := j.plan.(attn.Remote); ok {
		if err := r.Store(j.args); err != nil {
			return oracle.Verdict{}, err
		}
	}
	o, err := oracle.New(j.p, &judged)
	if err != nil {
		return oracle.Verdict{}, err
	}
	sample := oracle.Sample(&j.p, &judged, rows, seed)
	v := o.Judge(sample)
	if j.back == nil {
		return v, nil
	}
	// The gradient of a key is a sum over all rows, and the oracle knows the sampled ones. So the
	// other rows get an incoming gradient of 0.
	oracle.Thin(&j.p, j.args, j.grads, sample)
	j.back.Backward(j.args, j.grads)
	g, err := o.JudgeGrads(j.grads)
	cases.FillGrads(j.grads, InputSeed(j.at))
	if !(g.Worst <= v.Worst) {
		v.Worst, v.Where = g.Worst, g.Where
	}
	return v, err
}

// remote returns the plan of a job whose calls run in another process, nil for any other job.
func remote(j Job) attn.Remote {
	if a, ok := j.(*attention); ok {
		if r, ok := a.plan.(attn.Remote); ok {
			return r
		}
	}
	return nil
}

func (j *attention) Team() *attn.Team   { return j.team }
func (j *attention) Reads() []float32   { return j.slab }
func (j *attention) Updates() []float32 { return j.state }
func (j *attention) Scratch() int64     { return j.plan.Scratch() }

func (j *attention) Close() error {
	j.team.Close()
	if c, ok := j.plan.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
