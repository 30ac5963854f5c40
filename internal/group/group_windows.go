package group

import (
	"os/exec"
	"strconv"
)

// Lead does nothing: Windows knows the children of a process without a group.
func Lead(*exec.Cmd) {}

// Terminate kills a process and all processes that it has started.
func Terminate(leader int) error {
	return exec.Command("taskkill", "/T", "/F", "/PID", strconv.Itoa(leader)).Run()
}

// Kill does the same as [Terminate]. The process may have ended.
func Kill(leader int) { _ = Terminate(leader) }
