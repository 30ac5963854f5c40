//go:build !linux

package attn

import "unsafe"

func askLargePages(unsafe.Pointer, uintptr) {}
