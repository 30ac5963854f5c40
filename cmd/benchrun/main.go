// Command benchrun measures attention kernels: which is right, which is fast at which length on
// this machine, and what it costs in memory.
//
// Without arguments it verifies every kernel, sweeps a small grid in about a minute, prints a table
// and writes a run folder. See benchrun --help, and --help of each subcommand.
//
// Exit codes: 0 pass, 1 regressed or wrong answer, 2 undecided, 3 incomplete, 4 usage or tool
// error.
package main

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/alecthomas/kong"
)

// commands is the command line.
type commands struct {
	Quick     QuickCmd     `cmd:"" default:"withargs" help:"Verify every kernel, sweep a small grid, print a table: about a minute. This is what benchrun does without arguments."`
	List      ListCmd      `cmd:"" help:"List kernels, what each can do, and the instruction sets of this machine."`
	Machine   MachineCmd   `cmd:"" help:"Measure this machine: its peak, its memory, how steady it is."`
	Verify    VerifyCmd    `cmd:"" help:"Compare every kernel with the float64 definition."`
	Sweep     SweepCmd     `cmd:"" help:"Verify, then time, every point of a grid."`
	Compare   CompareCmd   `cmd:"" help:"Compare two runs: benchstat's numbers, and which cells are faster or slower."`
	AB        ABCmd        `cmd:"" name:"ab" help:"Is a change slower? Two revisions, or two kernels, run by turns."`
	Gate      GateCmd      `cmd:"" help:"May this run pass? Holds it against a baseline of the same machine: for CI."`
	History   HistoryCmd   `cmd:"" help:"At which commit did a speed step? The series of every cell over the runs that are kept."`
	Doctor    DoctorCmd    `cmd:"" help:"What are comparisons worth on this machine, and what disturbs them?"`
	Report    ReportCmd    `cmd:"" help:"Write the report of a run, with charts; renew the README's table and chart."`
	Equations EquationsCmd `cmd:"" help:"Check every equation of the source documents, in float64 and on every kernel."`
	Worker    WorkerCmd    `cmd:"" hidden:"" help:"Do what the parent process asks on standard input."`
}

// streams are where a command writes: results to Out, progress and remarks to Err.
type streams struct {
	Out, Err io.Writer
}

func main() { os.Exit(benchrun(os.Args[1:], streams{os.Stdout, os.Stderr}, allKernels())) }

// benchrun runs one command line and returns its exit code. Go ends a program that panics with 2,
// which is a verdict here.
func benchrun(args []string, to streams, all kernelList) (code int) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(to.Err, "panic: %v\n\n%s", p, debug.Stack())
			code = exitUsage
		}
	}()
	_, k, err := parse(args, to)
	if err == nil {
		err = k.Run(to, all)
	}
	if err != nil {
		fmt.Fprintf(to.Err, "benchrun: %v\n", err)
	}
	return exitCode(err)
}

// parse reads a command line. It ends the process where the line asks for help.
func parse(args []string, to streams) (*commands, *kong.Context, error) {
	c := new(commands)
	parser, err := kong.New(
		c, kong.Name("benchrun"), kong.Writers(to.Out, to.Err),
		kong.Description("Measures attention kernels: which is right, which is fast at which length on this machine, and what it costs in memory.\n\n"+
			"Exit codes: 0 pass, 1 regressed or wrong answer, 2 undecided, 3 incomplete, 4 usage or tool error."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 120}),
	)
	if err != nil {
		return nil, nil, err
	}
	k, err := parser.Parse(args)
	return c, k, err
}
