//go:build !(linux && amd64)

package asm

import "errors"

// allowTiles says why there are none: who would have to be asked, and how, differs from system to system.
func allowTiles() error { return errors.New("tiles are used on Linux alone") }
