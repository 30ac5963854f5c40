//go:build unix && !linux

package group

import (
	"os/exec"
	"syscall"
)

// Lead makes a command, before it is started, the leader of a process group of its own. Signals
// that a terminal sends to our group do not reach it.
func Lead(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
