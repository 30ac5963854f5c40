//go:build !unix && !windows

package run

import (
	"errors"
	"os"
)

func lockFile(*os.File) error { return errors.ErrUnsupported }
