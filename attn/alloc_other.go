//go:build !linux

package attn

import "unsafe"

func adviseLargePages(unsafe.Pointer, uintptr) {}
