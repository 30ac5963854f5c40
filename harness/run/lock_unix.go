//go:build unix

package run

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lock keeps other processes from writing a file until it is closed, or its process ends in whatever way.
func lock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return fmt.Errorf("%s: another process is writing this run", f.Name())
	case errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOLCK):
		return nil // file systems without locks
	case err != nil:
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	return nil
}
