//go:build !unix && !windows

package group

import (
	"os"
	"os/exec"
)

// Lead does nothing: this system has no process groups.
func Lead(*exec.Cmd) {}

// Terminate kills the process. What it has started lives on: this system has no process groups.
func Terminate(leader int) error {
	p, err := os.FindProcess(leader)
	if err != nil {
		return err
	}
	return p.Kill()
}

// Kill kills the process. What it has started lives on: this system has no process groups.
func Kill(leader int) { _ = Terminate(leader) }
