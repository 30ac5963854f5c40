// Package processtest is for tests that start processes.
package processtest

import (
	"debug/elf"
	"os"
	"testing"
)

// Needed skips a test that starts processes where this program is emulated: user-mode emulators run
// it among programs of another machine, cannot run it a second time by its name, and copy a process
// with many threads in a way that may leave the copy waiting for ever.
func Needed(t testing.TB) {
	t.Helper()
	if self, shell := machine("/proc/self/exe"), machine("/bin/sh"); self != shell && self != elf.EM_NONE && shell != elf.EM_NONE {
		t.Skipf("SKIPPED: an emulated program starts no processes (this is %v, the shell is %v)", self, shell)
	}
}

// machine is what a program is for; nothing where there is none, or programs have another format.
func machine(path string) elf.Machine {
	f, err := elf.Open(path)
	if err != nil {
		return elf.EM_NONE
	}
	defer f.Close()
	return f.Machine
}

// Self is the path of the program under test, for a test that starts it again.
func Self(t testing.TB) string {
	t.Helper()
	Needed(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return self
}
