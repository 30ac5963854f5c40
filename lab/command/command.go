// Package command is the command line of benchrun: its flags, and a file for each subcommand. What
// it measures, and what it measures by, is handed to it as a [Lab], so a program with other kernels
// is a call of [Main].
//
// Without arguments it verifies every kernel, sweeps a small grid in about a minute, prints a table
// and writes a run folder. See benchrun --help, and --help of each subcommand.
//
// Exit codes: 0 pass, 1 regressed or wrong answer, 2 undecided, 3 incomplete, 4 usage or tool
// error.
package command

import (
	"fmt"
	"io"
	"runtime/debug"

	"github.com/alecthomas/kong"
)

// commands are the subcommands and their flags.
type commands struct {
	Quick     QuickCmd     `cmd:"" default:"withargs" help:"Verify every kernel, sweep a small grid, print a table: about a minute. The default without arguments."`
	List      ListCmd      `cmd:"" help:"List kernels, what each can do, and the instruction sets of this machine."`
	Machine   MachineCmd   `cmd:"" help:"Measure this machine: its peak, its memory, how steady it is."`
	Verify    VerifyCmd    `cmd:"" help:"Compare every kernel with the float64 definition."`
	Sweep     SweepCmd     `cmd:"" help:"Verify and time every point of a grid."`
	Compare   CompareCmd   `cmd:"" help:"Compare two runs: benchstat's numbers, and which cells are faster or slower."`
	AB        ABCmd        `cmd:"" name:"ab" help:"Is a change slower? Interleave two revisions, or two kernels."`
	Gate      GateCmd      `cmd:"" help:"May this run pass? Compare it with a baseline of the same machine, in CI."`
	History   HistoryCmd   `cmd:"" help:"At which commit did a speed change? Follow every cell through all kept runs."`
	Doctor    DoctorCmd    `cmd:"" help:"How small a difference can this machine show, and what disturbs it?"`
	Report    ReportCmd    `cmd:"" help:"Write the report of a run, with charts; rewrite the README's table and chart."`
	Equations EquationsCmd `cmd:"" help:"Check every equation of the source documents, in float64 and on every kernel."`
	Worker    WorkerCmd    `cmd:"" hidden:"" help:"Answer the requests of the parent process on standard input."`
}

// streams are where a command writes: results to Out, progress and remarks to Err.
type streams struct {
	Out, Err io.Writer
}

// Main runs one command line on a lab and returns its exit code. Results go to stdout, progress and
// remarks to stderr.
//
// A subcommand that measures runs this program again as its worker, with the argument worker: the
// main function hands every command line to Main.
func Main(lab Lab, args []string, stdout, stderr io.Writer) (code int) {
	return benchrun(args, streams{stdout, stderr}, lab)
}

// benchrun runs one command line and returns its exit code. A panic is exit code 4: Go's own 2 is a
// verdict here.
func benchrun(args []string, to streams, lab Lab) (code int) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(to.Err, "panic: %v\n\n%s", p, debug.Stack())
			code = exitUsage
		}
	}()
	_, k, err := parse(args, to)
	if err == nil {
		err = k.Run(to, lab)
	}
	if err != nil {
		fmt.Fprintf(to.Err, "benchrun: %v\n", err)
	}
	return exitCode(err)
}

// parse reads a command line. It ends the process if the line asks for help.
func parse(args []string, to streams) (*commands, *kong.Context, error) {
	c := &commands{Sweep: SweepCmd{Grid: newGrid()}, AB: ABCmd{Grid: newGrid()}}
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
