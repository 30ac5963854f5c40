//go:build !purego

package asm

// native returns the loops of an instruction set, nil if this build has none.
func native(isa string) *Ops {
	switch isa {
	case "avx2":
		return avx2.ops()
	case "avx512":
		return avx512.ops()
	}
	return nil
}
