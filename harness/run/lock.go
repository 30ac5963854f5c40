package run

import (
	"errors"
	"fmt"
	"os"
)

// ErrLocked reports that another process holds the lock of a file.
var ErrLocked = errors.New("another process is writing this run")

// Lock locks a file for this process, until the file is closed or the process ends in whatever way.
// Other processes can still read it. If one of them holds the lock, the error is ErrLocked; where
// the system or the file system has no locks, it is errors.ErrUnsupported.
func Lock(f *os.File) error {
	if err := lockFile(f); err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	return nil
}

// lock keeps other processes from writing a journal, where the system has locks.
func lock(f *os.File) error {
	if err := Lock(f); !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}
