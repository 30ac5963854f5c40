//go:build unix

package group

import "syscall"

// Kill kills every process of the group that a process leads, or led before it ended. There may be
// none left.
func Kill(leader int) { _ = syscall.Kill(-leader, syscall.SIGKILL) }
