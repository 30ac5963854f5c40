// Package harnesstest has, for tests, a Worker that answers at once and kernels that are odd in one
// way.
package harnesstest

import (
	"context"
	"fmt"
	"time"

	"attnlab/attn"
	"attnlab/attn/oracle"
	"attnlab/harness"
	"attnlab/harness/run"
)

// A Worker answers from functions and keeps what it was asked for. Its zero value finds every
// answer right and takes a millisecond for each call.
type Worker struct {
	OnVerify func(at run.Point) (oracle.Verdict, error)
	// OnSample gets the number of the visit, which counts from 1 for each point.
	OnSample func(at run.Point, visit int) (harness.Sample, error)

	Asked   []run.Point // for verification or memory
	Sampled []run.Point

	visits map[run.Point]int
}

// Verify implements harness.Worker.
func (w *Worker) Verify(ctx context.Context, at run.Point) (oracle.Verdict, error) {
	w.Asked = append(w.Asked, at)
	if w.OnVerify != nil {
		return w.OnVerify(at)
	}
	return oracle.Verdict{Rows: 4, Worst: 0.25}, ctx.Err()
}

// Memory implements harness.Worker.
func (w *Worker) Memory(ctx context.Context, at run.Point) (harness.Memory, error) {
	w.Asked = append(w.Asked, at)
	return harness.Memory{Scratch: new(int64(64))}, ctx.Err()
}

// Sample implements harness.Worker.
func (w *Worker) Sample(ctx context.Context, at run.Point, _ harness.SampleOptions) (harness.Sample, error) {
	if ctx.Err() != nil {
		return harness.Sample{}, ctx.Err()
	}
	if w.visits == nil {
		w.visits = map[run.Point]int{}
	}
	w.visits[at]++
	w.Sampled = append(w.Sampled, at)
	if w.OnSample != nil {
		return w.OnSample(at, w.visits[at])
	}
	return Steady(time.Millisecond), nil
}

// Steady returns a sample of ten calls of the given time each, on a machine whose rate is constant.
func Steady(call time.Duration) harness.Sample {
	return harness.Sample{Calls: 10, Elapsed: harness.Elapsed{Wall: 10 * call, CPU: 10 * call}, Before: 1e9, After: 1e9}
}

// Point returns a forward point of a portable kernel, with a dimension of 8.
func Point(kernel string, seq int) run.Point {
	return run.Point{Kernel: kernel, ISA: "go", SeqKV: seq, Dim: 8}.WithDefaults()
}

// Workload returns a workload that cannot be prepared. Its scratch is a float32 for each pair of a
// query and a key. There is none of the kernel "absent".
func Workload(at run.Point) (*harness.Workload, error) {
	if at.Kernel == "absent" {
		return nil, fmt.Errorf("there is no kernel %s/%s", at.Kernel, at.ISA)
	}
	p, err := at.Problem()
	return &harness.Workload{
		Point: at, Scratch: 4 * int64(at.SeqQ) * int64(at.SeqKV),
		Count: func() (attn.Count, error) { return p.Count(nil), nil },
	}, err
}
