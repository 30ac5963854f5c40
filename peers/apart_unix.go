//go:build unix

package peers

import (
	"os/exec"
	"syscall"
)

// apart has a program run in a group of its own: what a terminal sends to ours is for benchrun alone, which finishes the call in hand.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
