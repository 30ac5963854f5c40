package attn

import (
	"fmt"
	"time"
)

// A Kernel is one implementation of attention for one instruction set. It is stateless and safe for
// concurrent use.
type Kernel interface {
	// Name returns the kernel's two benchmark keys, such as flash and avx2.
	Name() (algo, isa string)
	// Check returns the scratch bytes of a plan for a team of the given number of workers, or the
	// reason why there can be no plan. It allocates nothing that grows with the problem. Plan fails
	// exactly when Check does.
	Check(p Problem, workers int) (scratch int64, err error)
	// Plan makes every decision and allocation that calls need.
	Plan(p Problem, team *Team) (Plan, error)
}

// A Plan runs one problem on any operands, one call at a time. Plans of this module panic when a
// second call begins before the first has ended. The methods of a plan do not allocate. A plan may
// keep the operands of its last call from being freed.
type Plan interface {
	// Forward writes Out and the Stats that are set, whatever they held before. It panics on bad
	// operands.
	Forward(a *Args)
	// Scratch returns the number of bytes that the plan holds.
	Scratch() int64
}

// Differentiable is a plan with a backward pass. Every plan of a problem with WantGrad has one.
// Another plan may have the method, which then panics.
type Differentiable interface {
	Plan
	// Backward writes the outgoing gradients that are set, whatever they held before. It reads the
	// incoming gradients, and the operands and outputs of a Forward as that Forward left them. It
	// panics on bad operands.
	Backward(a *Args, g *Grads)
}

// Tuned is a kernel that adapts its computation to the CPU. It is found by type assertion.
type Tuned interface {
	Kernel
	// Path names the choices that change the kernel's bits, such as exp=reduced,prescaled. All
	// problems have one path. Results of different paths count as results of different kernels:
	// they are never compared as two versions of one. A kernel without choices returns "".
	Path() string
}

// Native is the instruction set of a kernel of another program, which chooses its instructions
// itself. Such a kernel may refuse problems that every kernel of this module computes.
const Native = "native"

// A Foreign kernel is computed by another program. It may refuse any problem and may fail at any
// time, so its abilities are not found by checking one after the other. Its failures are
// RemoteErrors; its refusals are ErrUnsupported, like those of any kernel.
type Foreign interface {
	Kernel
	// Claims returns every ability that a problem may need from it.
	Claims() Needs
	// Within limits the total time of all later calls, until the next call of Within. 0 means no
	// limit.
	Within(limit time.Duration)
	// Watch registers a function that is called when a program starts, and again with runs false
	// when it has ended. group is the process group of the program's processes.
	Watch(heard func(group int, runs bool))
}

// A RemoteError describes a failure of a program that computes for a Foreign kernel.
type RemoteError struct {
	Kernel string // the name of the kernel
	Stage  string // the request that failed, such as run
	Fault  string // what the program did
	Late   bool   // the program did not answer in time
}

func (e *RemoteError) Error() string {
	return fmt.Sprintf("peer %s: %s: %s", e.Kernel, e.Stage, e.Fault)
}

// Remote is a plan that is computed elsewhere: by a peer process, or by a library behind cgo. Its
// Forward is Load, Run(1) and Store, and panics with their errors. It is found by type assertion.
//
// A Remote that holds a process, a mapping or C memory is also an io.Closer. The caller of Plan
// closes it.
type Remote interface {
	Plan
	Load(a *Args) error
	// Run computes the given number of calls and times itself, without the copies in and out.
	Run(calls int) (cpu, wall time.Duration, err error)
	Store(a *Args) error
	// Process returns the ID of the process whose memory a call uses, or 0 if there is none to
	// watch.
	Process() int
}

// RemoteBackward is a Remote with a backward pass, which uses the results of its last Run. Its
// Backward is LoadGrads, RunBackward(1) and StoreGrads.
type RemoteBackward interface {
	Remote
	Differentiable
	LoadGrads(a *Args, g *Grads) error
	RunBackward(calls int) (cpu, wall time.Duration, err error)
	StoreGrads(g *Grads) error
}
