//go:build !(linux && amd64)

package asm

import "errors"

// allowTiles reports why AMX tiles are not available: each system has its own way to request them.
func allowTiles() error { return errors.New("AMX tiles are used on Linux alone") }
