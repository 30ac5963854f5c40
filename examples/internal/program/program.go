// Package program is the frame that the examples share: a command line, a run folder, Ctrl-C,
// progress on a terminal, and training that can be interrupted and resumed.
package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"attnlab/attn"
	"attnlab/kernels"
	"attnlab/kernels/asm"
	"attnlab/nn"
)

// ErrInterrupted reports that Ctrl-C or SIGTERM stopped a training that can be resumed.
var ErrInterrupted = errors.New("interrupted")

// Exit codes of the examples.
const (
	exitFailed     = 1
	exitIncomplete = 3
)

// Main runs a program and exits. The first Ctrl-C cancels the context; the second one ends the
// process at once.
func Main(name string, program func(ctx context.Context, args []string, out, progress io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := program(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(exit(name, err, os.Stderr))
}

// exit prints an error and returns the exit code.
func exit(name string, err error, to io.Writer) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintf(to, "%s: %v\n", name, err)
	if errors.Is(err, ErrInterrupted) {
		return exitIncomplete
	}
	return exitFailed
}

// BestISA returns the last instruction set in [asm.Levels] that this machine has.
func BestISA() (isa string) {
	for _, l := range asm.Levels() {
		if l.Available {
			isa = l.ISA
		}
	}
	return isa
}

// On returns a kernel and a multiplier for an instruction set, with the team of threads that both
// use. The caller closes the team. Kernel naive exists as portable Go only; it can be combined with
// a multiplier of any instruction set.
func On(kernel, isa string, threads int) (on nn.On, team *attn.Team, err error) {
	own := isa
	if kernel == "naive" {
		own = "go"
	}
	k, err := kernels.ByName(kernel, own)
	if err != nil {
		return on, nil, err
	}
	for _, l := range asm.Levels() {
		if l.ISA == isa && l.Available {
			team = attn.NewTeam(threads)
			return nn.On{Kernel: k, Products: nn.NewMultiplier(l.Ops, team)}, team, nil
		}
	}
	return on, nil, fmt.Errorf("instruction set %s is not available here: choose %s", isa, BestISA())
}
