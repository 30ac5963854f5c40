package command

import (
	"errors"
	"fmt"
)

// Exit codes of the command.
const (
	exitWrong      = 1 // regressed, or a wrong answer
	exitUndecided  = 2
	exitIncomplete = 3
	exitUsage      = 4 // usage or tool error
)

// An ExitError is an error with an exit code. An error of any other type is exit code 4.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string { return e.Err.Error() }

// Unwrap returns the error without its code.
func (e *ExitError) Unwrap() error { return e.Err }

// exitf returns an ExitError with a formatted text.
func exitf(code int, format string, a ...any) error {
	return &ExitError{Code: code, Err: fmt.Errorf(format, a...)}
}

// exitCode returns the exit code of an error.
func exitCode(err error) int {
	var e *ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.Code
	}
	return exitUsage
}
