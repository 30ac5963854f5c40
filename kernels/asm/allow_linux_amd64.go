package asm

import (
	"fmt"
	"syscall"
)

// allowTiles asks the kernel to let this process use the registers of tiles, which others that are to be preserved take 8 KiB for: it gives no process room for
// them that has not asked. What it allows, it allows for good.
func allowTiles() error {
	const request, data = 0x1023, 18 // ARCH_REQ_XCOMP_PERM, XTILEDATA
	if _, _, err := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, request, data, 0); err != 0 {
		return fmt.Errorf("the kernel does not allow tiles: %w", err)
	}
	return nil
}
