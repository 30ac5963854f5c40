package peers

import (
	"os/exec"
	"syscall"
)

// apart has a program run in a group of its own: what a terminal sends to ours is for benchrun alone, which finishes the call in hand. A program that outlived
// the process that asks it would take time from whatever is measured next: it dies with the thread that started it.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
