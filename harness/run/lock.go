package run

import (
	"errors"
	"fmt"
	"os"
)

// ErrLocked reports that another process holds the lock of a file.
var ErrLocked = errors.New("another process is writing this run")

// Lock locks a file for this process, until the file is closed or the process ends. Other processes
// can still read it. The error is ErrLocked if another process holds the lock, and
// errors.ErrUnsupported if the system or the file system has no locks.
func Lock(f *os.File) error {
	if err := lockFile(f); err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	return nil
}

// lock keeps other processes from writing a journal. It does nothing on a system without locks.
func lock(f *os.File) error {
	if err := Lock(f); !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}
