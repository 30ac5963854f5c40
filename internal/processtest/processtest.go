// Package processtest has helpers for tests that start processes.
package processtest

import (
	"debug/elf"
	"os"
	"testing"
)

// Needed skips a test that starts processes if this program is emulated. A user-mode emulator runs
// it among programs of another machine, and cannot run it a second time by its name. It also copies
// a process with many threads in a way that may leave the copy waiting forever.
func Needed(t testing.TB) {
	t.Helper()
	if self, shell := machine("/proc/self/exe"), machine("/bin/sh"); self != shell && self != elf.EM_NONE && shell != elf.EM_NONE {
		t.Skipf("SKIPPED: an emulated program starts no processes (this is %v, the shell is %v)", self, shell)
	}
}

// machine returns the machine that a program is built for. It returns none if there is no program
// or it has another format.
func machine(path string) elf.Machine {
	f, err := elf.Open(path)
	if err != nil {
		return elf.EM_NONE
	}
	defer f.Close()
	return f.Machine
}

// Self returns the path of the program under test, for a test that starts it again.
func Self(t testing.TB) string {
	t.Helper()
	Needed(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return self
}
