//go:build !(amd64 || arm64) || purego

package asm

// native returns the loops of an instruction set, of which this build has none.
func native(string) set { return nil }
