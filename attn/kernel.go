package attn

import (
	"fmt"
	"time"
)

// A Kernel is one implementation of attention for one instruction set. It is stateless and safe for
// concurrent use.
type Kernel interface {
	// Name is the pair of benchmark keys, such as flash and avx2.
	Name() (algo, isa string)
	// Check says what a plan would cost in scratch bytes with so many workers, or why there can be
	// none. It allocates nothing that grows with the problem. Plan fails exactly when Check does.
	Check(p Problem, workers int) (scratch int64, err error)
	// Plan decides and allocates.
	Plan(p Problem, team *Team) (Plan, error)
}

// A Plan runs one problem on any operands, one call at a time: plans of this module panic when a
// second call begins before the first has ended. Its methods do not allocate. It may keep the
// operands of its last call from being freed.
type Plan interface {
	// Forward writes Out and the Stats that are set. What they held before does not matter. It
	// panics on bad operands.
	Forward(a *Args)
	// Scratch is the number of bytes the plan holds.
	Scratch() int64
}

// Differentiable is a plan with a backward pass. The plan of a problem that Wants gradients has
// one; others may have the method, which panics.
type Differentiable interface {
	Plan
	// Backward writes the outgoing gradients that are set, from the incoming ones and the operands
	// of a Forward, as that has left them. What they held before does not matter. It panics on bad
	// operands.
	Backward(a *Args, g *Grads)
}

// Recurrent is a plan that can carry a state from call to call: that of a linear problem under a
// causal mask, without Lengths.
//
// Step absorbs all rows of a (one or many, up to SeqQ, as many queries as keys), writes their
// outputs and leaves the state after them, in the chunked or one-row form that Problem.SeqQ
// chooses. Forward is Step from the rule's zero state. A state is float32 [batch][key
// head][d_phi][d_v], followed, when normalised, by [batch][key head][d_phi].
type Recurrent interface {
	Plan
	StateLen() int
	Step(a *Args, state []float32)
}

// Tuned is a kernel that chooses how it computes by what the CPU prefers. It is found by type
// assertion.
type Tuned interface {
	Kernel
	// Path names the choices of the kernel that change its bits, such as exp=reduced,prescaled. It
	// is the same for all problems. Rows of different paths are those of different kernels: they
	// are not compared with each other as two versions of one. A kernel without choices returns "".
	Path() string
}

// Native is the instruction set of a kernel that is not ours, and chooses for itself. It may also
// refuse what any kernel of ours does.
const Native = "native"

// A Foreign kernel is one that another program computes. It may refuse any problem and break at any
// time, so what it can do is not found out by asking it for one ability at a time. What goes wrong
// there is a RemoteError; a refusal is ErrUnsupported, as of any kernel.
type Foreign interface {
	Kernel
	// Claims returns every ability that a problem may ask of it.
	Claims() Needs
	// Within bounds the time of everything that is asked of it from now on, together, until the
	// next call of Within. 0 is no bound.
	Within(limit time.Duration)
	// Watch has heard called when a program starts and again, with runs false, when it has ended.
	// Its processes are the process group of that number.
	Watch(heard func(group int, runs bool))
}

// A RemoteError says what a program that computes elsewhere did wrong.
type RemoteError struct {
	Kernel string // the name of its kernel
	Stage  string // what it was asked, such as run
	Fault  string // what it did
	Late   bool   // it was given up because it did not answer in time
}

func (e *RemoteError) Error() string {
	return fmt.Sprintf("peer %s: %s: %s", e.Kernel, e.Stage, e.Fault)
}

// Remote is a plan computed elsewhere: a peer in a process, a library behind cgo. Forward is then
// Load, Run(1), Store, and panics with their error. It is found by type assertion, as is io.Closer:
// a plan that holds a process, a mapping or C memory; whoever plans, closes.
type Remote interface {
	Plan
	Load(a *Args) error
	// Run times itself; copies in and out are not in it.
	Run(calls int) (cpu, wall time.Duration, err error)
	Store(a *Args) error
	// Process is the system's number of the process whose memory a call takes, 0 if none is to be
	// watched.
	Process() int
}

// RemoteBackward is a Remote with a backward pass, of what its last Run has left. Backward is then
// LoadGrads, RunBackward(1), StoreGrads.
type RemoteBackward interface {
	Remote
	Differentiable
	LoadGrads(a *Args, g *Grads) error
	RunBackward(calls int) (cpu, wall time.Duration, err error)
	StoreGrads(g *Grads) error
}
