package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"attnlab/harness/run"
	"attnlab/reports"
)

// ReportCmd makes what people read from a run.
type ReportCmd struct {
	Dir    string       `arg:"" name:"run" help:"Run folder."`
	Readme optionalPath `placeholder:"PATH" xor:"do" help:"Also renew the table between the ladder marks of README.md, or of PATH, and the chart in docs/."`
	Serve  loopbackAddr `placeholder:"ADDR" xor:"do" help:"Write nothing, but serve report.html on ADDR of this machine, 127.0.0.1 and a free port without it, and keep it up to date while a sweep writes the run."`
}

// A loopbackAddr is an address of this machine, as a flag that may stand alone, and then means any
// free port.
type loopbackAddr string

// Decode reads the flag. What follows it is its value if it is joined to it by an equals sign, or
// ends in a port.
func (a *loopbackAddr) Decode(ctx *kong.DecodeContext) error {
	*a = "127.0.0.1:0"
	t := ctx.Scan.Peek()
	host, port, err := net.SplitHostPort(t.String())
	if _, bad := strconv.ParseUint(port, 10, 16); t.Type != kong.FlagValueToken && (err != nil || bad != nil) {
		return nil
	} else if err != nil || bad != nil {
		return fmt.Errorf("%q is not an address such as 127.0.0.1:8080", t)
	}
	ctx.Scan.Pop()
	if host == "" || host == "localhost" {
		host = "127.0.0.1"
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("%s is not an address of this machine alone: a report is served on 127.0.0.1", host)
	}
	*a = loopbackAddr(net.JoinHostPort(host, port))
	return nil
}

// IsBool lets the flag stand without a value.
func (*loopbackAddr) IsBool() bool { return true }

// An optionalPath is a flag that may stand alone, and then means README.md.
type optionalPath string

// Decode reads the flag. What follows it is its value if it is joined to it by an equals sign, or
// is a Markdown file.
func (p *optionalPath) Decode(ctx *kong.DecodeContext) error {
	*p = "README.md"
	if t := ctx.Scan.Peek(); t.Type == kong.FlagValueToken || strings.HasSuffix(t.String(), ".md") {
		*p = optionalPath(ctx.Scan.Pop().String())
	}
	return nil
}

// IsBool lets the flag stand without a value.
func (*optionalPath) IsBool() bool { return true }

// Help is printed above the flags.
func (*ReportCmd) Help() string {
	return `Writes report.html, report.md and plots/ (time, FLOP/s, scratch memory and peak memory against sequence length, as SVG and PNG) into the run folder,
and rewrites sweep.csv and bench.txt from its journal. report.html is one file that needs no network: summary, charts that kernels are switched on and
off in, a roofline, and the table of all points, to be sorted or taken away as CSV; without a script it still has the summary and the tables.

--serve shows the same page while a sweep goes on in another process, until Ctrl-C. A page that is open is renewed every two seconds, which takes some
of a CPU: leave the sweep its own (taskset), or look when it is done.`
}

// Run writes the report.
func (c *ReportCmd) Run(to streams) error {
	r, err := run.Load(c.Dir)
	if err != nil {
		return err
	}
	if c.Serve != "" {
		return c.serve(to)
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(to.Err, "benchrun: %s\n", w)
	}
	if err := r.Write(); err != nil {
		return err
	}
	if err := reports.Write(c.Dir); err != nil {
		return err
	}
	fmt.Fprintln(to.Out, filepath.Join(c.Dir, run.HTMLFile))
	fmt.Fprintln(to.Out, filepath.Join(c.Dir, run.ReportFile))
	if c.Readme == "" {
		return nil
	}
	if err := reports.README(string(c.Readme), r); err != nil {
		return err
	}
	fmt.Fprintln(to.Out, string(c.Readme))
	return nil
}

// serve serves the report until it is interrupted.
func (c *ReportCmd) serve(to streams) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", string(c.Serve))
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: reports.Live(c.Dir), BaseContext: func(net.Listener) context.Context { return ctx }, ReadHeaderTimeout: 10 * time.Second,
	}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	fmt.Fprintf(to.Out, "http://%s/\n", listener.Addr())
	fmt.Fprintln(to.Err, "benchrun: Ctrl-C ends it")
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
