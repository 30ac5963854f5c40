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
)

// WorkerCmd is the child process in which points are verified, weighed and timed.
type WorkerCmd struct{}

// Run serves until standard input ends.
func (*WorkerCmd) Run(to streams, all kernelList) error {
	signal.Ignore(os.Interrupt, syscall.SIGTERM) // they may reach the whole process group: the parent decides what they mean
	os.Stdout = os.Stderr                        // what a kernel prints is not an answer
	return newLab(all).Serve(orphan{os.Stdin}, to.Out)
}

// orphan is an input that ends the process when it ends: the parent is gone, and whatever is being measured is of no use to anybody.
type orphan struct{ io.Reader }

func (o orphan) Read(p []byte) (int, error) {
	n, err := o.Reader.Read(p)
	if n == 0 && errors.Is(err, io.EOF) {
		os.Exit(0)
	}
	return n, err
}

// newChild returns a worker that runs this program again.
func newChild(timeout time.Duration) (*harness.Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return childOf(self, timeout), nil
}

// childOf returns a worker that runs a build of this program.
func childOf(program string, timeout time.Duration) *harness.Child {
	return &harness.Child{Timeout: timeout, Command: func() *exec.Cmd {
		return &exec.Cmd{Path: program, Args: []string{os.Args[0], "worker"}}
	}}
}
