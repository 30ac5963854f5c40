//go:build unix && !linux

package peers

import (
	"os/exec"
	"syscall"
)

// apart has a program run in a group of its own.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
