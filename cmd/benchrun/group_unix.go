//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// group makes a command run in a process group of its own, with all that it starts. What a terminal
// sends on Ctrl-C does not reach the group; terminate does.
func group(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// terminate asks the group of a command to end.
func terminate(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }

// kill ends what is left of the group of a command.
func kill(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
