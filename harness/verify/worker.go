package verify

import (
	"context"
	"errors"
	"fmt"

	"attnlab/attn"
	"attnlab/attn/cases"
)

// A Worker tries cases in a process that may crash or hang. Both are findings; an error is one of
// the worker itself or of the context.
type Worker interface {
	// Try runs one case on one kernel.
	Try(ctx context.Context, algo, isa string, c cases.Case) (Finding, error)
	// TryOutside runs one outside case of a file or folder on one kernel.
	TryOutside(ctx context.Context, algo, isa, path string, o *cases.Outside) (Finding, error)
}

// ErrInterrupted is wrapped by the error of a list of cases that was not run to its end.
var ErrInterrupted = errors.New("interrupted")

// Cases runs every case on every kernel and returns a table of the findings. It does not go on with
// a kernel that is late. When stop is closed, or ctx is done, it returns the table so far and
// ErrInterrupted.
func Cases(ctx context.Context, stop <-chan struct{}, w Worker, kernels []attn.Kernel, list []cases.Case) (*Table, error) {
	t := newTable(list)
	err := each(ctx, stop, kernels, len(list), func(algo, isa string, i int) (Finding, error) {
		f, err := w.Try(ctx, algo, isa, list[i])
		if err == nil {
			t.add(f)
		}
		return f, err
	})
	switch {
	case errors.Is(err, ErrInterrupted):
		return t, fmt.Errorf("%w: the table is of what was tried before", err)
	case err != nil:
		return nil, err
	}
	return t, nil
}

// each calls try for every kernel and number below n, until a finding is late or something is
// interrupted.
func each(ctx context.Context, stop <-chan struct{}, kernels []attn.Kernel, n int, try func(algo, isa string, i int) (Finding, error)) error {
	for _, k := range kernels {
		algo, isa := k.Name()
		for i := range n {
			interrupted := fmt.Errorf("%w at %s/%s", ErrInterrupted, algo, isa)
			select {
			case <-stop:
				return interrupted
			default:
			}
			f, err := try(algo, isa, i)
			switch {
			case ctx.Err() != nil:
				return interrupted
			case err != nil:
				return err
			}
			if f.Late {
				break
			}
		}
	}
	return nil
}

// Outside is a list of outside cases and what runs them.
type Outside struct {
	Path  string // the file or folder that List was read from
	List  []cases.Outside
	Norms []func(*cases.Outside) Finding // run normalisations, which no kernel does; may be empty
}

// Run runs every case on every kernel, or on every one of Norms, and returns a report that accounts
// for each case. When stop is closed, or ctx is done, it returns ErrInterrupted.
func (l *Outside) Run(ctx context.Context, stop <-chan struct{}, w Worker, kernels []attn.Kernel) (*OutsideReport, error) {
	r := newOutsideReport()
	var own, norms []*cases.Outside
	for i := range l.List {
		switch o := &l.List[i]; {
		case o.Norm != nil:
			norms = append(norms, o)
		case o.Lacks == "":
			own = append(own, o)
		}
	}
	err := each(ctx, stop, kernels, len(own), func(algo, isa string, i int) (Finding, error) {
		f, err := w.TryOutside(ctx, algo, isa, l.Path, own[i])
		if err == nil {
			r.add(f)
		}
		return f, err
	})
	if err != nil {
		return nil, err
	}
	for _, try := range l.Norms {
		for _, o := range norms {
			r.add(try(o))
		}
	}
	r.account(l.List, len(l.Norms) > 0)
	return r, nil
}
