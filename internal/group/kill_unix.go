//go:build unix

package group

import "syscall"

// Terminate asks every process of the group that a process leads to end.
func Terminate(leader int) error { return syscall.Kill(-leader, syscall.SIGTERM) }

// Kill kills every process of the group that a process leads, or led before it ended. There may be
// none left.
func Kill(leader int) { _ = syscall.Kill(-leader, syscall.SIGKILL) }
