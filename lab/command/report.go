package command

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

// ReportCmd writes pages, tables and charts of a run.
type ReportCmd struct {
	Dir    string       `arg:"" name:"run" help:"Run folder."`
	Readme optionalPath `placeholder:"PATH" xor:"do" help:"Also put the run into the generated blocks of README.md, or of PATH, that it can fill, and write their pictures."`
	Serve  loopbackAddr `placeholder:"ADDR" xor:"do" help:"Write nothing; serve report.html on ADDR of this machine, and keep it up to date while a sweep writes the run. Default 127.0.0.1 and a free port. Example: 127.0.0.1:8080."`
}

// A loopbackAddr is an address of this machine. Its flag may stand without a value, which means any
// free port.
type loopbackAddr string

// Decode reads the flag. The next word is its value if an equals sign joins them, or if it ends in
// a port.
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

// An optionalPath is a path. Its flag may stand without a value, which means README.md.
type optionalPath string

// Decode reads the flag. The next word is its value if an equals sign joins them, or if it is a
// Markdown file.
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
	return `Writes report.html, report.md and plots/ into the run folder, and rewrites sweep.csv and bench.txt from its journal. The plots show time, FLOP/s,
scratch memory and peak memory against sequence length, as SVG and PNG. report.html is one file that needs no network: a summary, charts in which kernels
can be switched on and off, a roofline, and the table of all points, which can be sorted and saved as CSV. Without JavaScript it still shows the summary and
the tables.

--serve shows the same page while a sweep runs in another process, until Ctrl-C. An open page is renewed every two seconds, which takes CPU time: give the
sweep a CPU of its own (taskset), or look when it is done.`
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
