package harness

import (
	"context"
	"errors"
	"fmt"

	"attnlab/attn"
	"attnlab/attn/oracle"
	"attnlab/harness/run"
)

// A Worker does the steps at a point that may crash, hang or take all memory.
type Worker interface {
	// Verify runs a point once and compares rows of its answer with the oracle.
	Verify(ctx context.Context, at run.Point) (oracle.Verdict, error)
	// Memory measures the memory of a point.
	Memory(ctx context.Context, at run.Point) (Memory, error)
	// Sample takes one sample of a point.
	Sample(ctx context.Context, at run.Point, o SampleOptions) (Sample, error)
}

// ErrNoWorker is the error of a Client that cannot start a process. No point is the cause.
var ErrNoWorker = errors.New("cannot start a worker process")

// ErrTimeout is wrapped by a Client's error when a request took longer than its limit.
var ErrTimeout = errors.New("no answer")

// Find returns the kernel of a name.
func Find(kernels []attn.Kernel, algo, isa string) (attn.Kernel, error) {
	for _, k := range kernels {
		if a, i := k.Name(); a == algo && i == isa {
			return k, nil
		}
	}
	return nil, fmt.Errorf("there is no kernel %s/%s", algo, isa)
}

// Paths returns the paths of the kernels that name one.
func Paths(kernels []attn.Kernel) run.Paths {
	paths := run.Paths{}
	for _, k := range kernels {
		if t, ok := k.(attn.Tuned); ok && t.Path() != "" {
			algo, isa := k.Name()
			paths[run.Point{Kernel: algo, ISA: isa}.Contender()] = t.Path()
		}
	}
	return paths
}

// ProbeUnit returns the unit of the probe that a point is judged by: the memory's rate for one
// query, against many keys or a state, and floating-point operations for all other points.
func ProbeUnit(at run.Point) string {
	if at.SeqQ == 1 {
		return run.ProbeBytes
	}
	return run.ProbeFlop
}
