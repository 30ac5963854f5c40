//go:build unix

package run

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncFolder returns when the disk has the names of the files in a folder.
func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	err = f.Sync()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil // file systems that do not sync folders
	}
	return err
}
