package kernels

import (
	"errors"
	"fmt"
	"strings"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/flash"
	"attnlab/kernels/linear"
	"attnlab/kernels/naive"
	"attnlab/kernels/tiled"
)

// All lists the kernels that run on this machine: the readable ones first, and for each algorithm
// its instruction sets, portable first.
func All() []attn.Kernel {
	all, levels := []attn.Kernel{naive.New(), tiled.NewBLAS()}, asm.Levels()
	for _, algo := range []func(*asm.Ops) attn.Kernel{tiled.New, flash.New, linear.New} {
		for _, l := range levels {
			if l.Available {
				all = append(all, algo(l.Ops))
			}
		}
	}
	return all
}

// ByName returns a kernel by its pair of names, such as flash and go. The error lists the kernels
// that exist.
func ByName(algo, isa string) (attn.Kernel, error) {
	var names []string
	for _, k := range All() {
		a, i := k.Name()
		if a == algo && i == isa {
			return k, nil
		}
		names = append(names, a+"/"+i)
	}
	for _, l := range asm.Levels() {
		if l.ISA == isa && !l.Available {
			return nil, fmt.Errorf("%s/%s is not available: %s", algo, isa, l.Reason)
		}
	}
	return nil, fmt.Errorf("no kernel %s/%s: use one of %s", algo, isa, strings.Join(names, ", "))
}

// Best returns the fastest kernel that supports a problem: flash or linear on the last available
// instruction set, or the first other one that supports it. If none does, the error says what each
// lacks.
func Best(p attn.Problem) (attn.Kernel, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	var errs []error
	all := All()
	for i := len(all) - 1; i >= 0; i-- { // naive, the slowest, is first
		_, err := all[i].Check(p, 1)
		if err == nil {
			return all[i], nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("no kernel supports this problem: %w", errors.Join(errs...))
}
