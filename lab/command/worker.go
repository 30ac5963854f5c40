package command

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

// WorkerCmd is the process in which points are verified, weighed and timed.
type WorkerCmd struct{ Peers }

// Run serves until standard input ends.
func (c *WorkerCmd) Run(to streams, lab Lab) error {
	lab, err := c.join(lab)
	if err != nil {
		return err
	}
	// A terminal sends signals to the whole process group: the parent decides what they mean.
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	os.Stdout = os.Stderr // so that what a kernel prints is not taken for an answer
	return lab.server().Serve(orphan{os.Stdin, lab}, to.Out)
}

// An orphan is an input whose end ends the process, and the peers with it: the parent is gone, and
// nothing that is being measured is of use any more.
type orphan struct {
	io.Reader
	lab Lab
}

func (o orphan) Read(p []byte) (int, error) {
	n, err := o.Reader.Read(p)
	if n == 0 && errors.Is(err, io.EOF) {
		o.lab.kill()
		os.Exit(0)
	}
	return n, err
}

// newClient returns a client of worker processes that run this program again, with the same peers.
func newClient(timeout time.Duration, with Peers) (*harness.Client, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return clientOf(self, timeout, with), nil
}

// clientOf returns a client of worker processes that run a build of this program.
func clientOf(program string, timeout time.Duration, with Peers) *harness.Client {
	args := []string{os.Args[0], "worker"}
	if len(with.Peer) > 0 { // which older builds do not know
		args = append(args, "--peer="+kong.JoinEscaped(with.Peer, ','))
	}
	return &harness.Client{Timeout: timeout, Command: func() *exec.Cmd { return &exec.Cmd{Path: program, Args: args} }}
}
