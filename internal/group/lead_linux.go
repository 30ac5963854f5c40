package group

import (
	"os/exec"
	"syscall"
)

// Lead makes a command, before it is started, the leader of a process group of its own. Signals
// that a terminal sends to our group do not reach it. The leader is killed when the thread that
// started it ends, so it does not outlive this process.
func Lead(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
