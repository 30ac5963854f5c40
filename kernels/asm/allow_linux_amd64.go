package asm

import (
	"fmt"
	"syscall"
)

// allowTiles asks the kernel for permission to use the AMX tile registers. The kernel then saves 8
// KiB more for each thread that uses them. The permission lasts as long as the process.
func allowTiles() error {
	const request, data = 0x1023, 18 // ARCH_REQ_XCOMP_PERM, XTILEDATA
	if _, _, err := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, request, data, 0); err != 0 {
		return fmt.Errorf("the kernel does not allow AMX tiles: %w", err)
	}
	return nil
}
