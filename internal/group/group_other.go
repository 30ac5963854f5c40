//go:build !unix

package group

import (
	"os"
	"os/exec"
)

// Lead does nothing: this system has no process groups.
func Lead(*exec.Cmd) {}

// Kill kills the process. What it has started lives on: this system has no process groups.
func Kill(leader int) {
	if p, err := os.FindProcess(leader); err == nil {
		_ = p.Kill()
	}
}
