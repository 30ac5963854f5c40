//go:build !(linux && amd64)

package asm

import "errors"

// allowTiles reports why AMX tiles are not available: how to request them differs between systems.
func allowTiles() error { return errors.New("tiles are used on Linux alone") }
