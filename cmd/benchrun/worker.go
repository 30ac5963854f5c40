package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"attnlab/harness"

	"github.com/alecthomas/kong"
)

// WorkerCmd is the child process in which points are verified, weighed and timed.
type WorkerCmd struct{ Peers }

// Run serves until standard input ends.
func (c *WorkerCmd) Run(to streams, all kernelList) error {
	all, err := c.join(all)
	if err != nil {
		return err
	}
	signal.Ignore(os.Interrupt, syscall.SIGTERM) // they may reach the whole process group: the parent decides what they mean
	os.Stdout = os.Stderr                        // what a kernel prints is not an answer
	return newLab(all).Serve(orphan{os.Stdin, all}, to.Out)
}

// orphan is an input that ends the process when it ends, and the peers with it: the parent is gone,
// and has no use for whatever is being measured.
type orphan struct {
	io.Reader
	all kernelList
}

func (o orphan) Read(p []byte) (int, error) {
	n, err := o.Reader.Read(p)
	if n == 0 && errors.Is(err, io.EOF) {
		o.all.kill()
		os.Exit(0)
	}
	return n, err
}

// newChild returns a worker that runs this program again, with the same peers.
func newChild(timeout time.Duration, with Peers) (*harness.Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return childOf(self, timeout, with), nil
}

// childOf returns a worker that runs a build of this program.
func childOf(program string, timeout time.Duration, with Peers) *harness.Child {
	args := []string{os.Args[0], "worker"}
	if len(with.Peer) > 0 { // which older builds do not know
		args = append(args, "--peer="+kong.JoinEscaped(with.Peer, ','))
	}
	return &harness.Child{Timeout: timeout, Command: func() *exec.Cmd { return &exec.Cmd{Path: program, Args: args} }}
}
