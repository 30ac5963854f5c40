package asmgen

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// Go's assembler has no AMX instructions, so they are written as bytes. All begin with a VEX prefix
// of three bytes. The second byte says which operands are upper registers; the third holds the tile
// B and the legacy prefix.
const (
	vexNone = 0x78 + iota // no prefix
	_
	vexF3
	vexF2
)

func (x x86) bytes(instruction string, code ...byte) {
	s := make([]string, len(code))
	for i, b := range code {
		s[i] = fmt.Sprintf("BYTE $%#02x", b)
	}
	fmt.Fprintf(x.text, "\t%s // %s\n", strings.Join(s, "; "), instruction)
}

// places are the numbers of integer registers.
var places = map[string]byte{"AX": 0, "CX": 1, "DX": 2, "BX": 3, "BP": 5, "SI": 6, "DI": 7, "R8": 8, "R9": 9, "R10": 10, "R11": 11, "R12": 12, "R13": 13, "R14": 14, "R15": 15}

// tileMemory emits an instruction with an address, whose displacement has four bytes.
func (x x86) tileMemory(format string, prefix byte, t int, m mem) {
	base, index := places[x.register(m.base)], places[x.register(m.index)]
	code := []byte{0xc4, 0xe2 &^ (index >> 3 << 6) &^ (base >> 3 << 5), prefix, 0x4b, 0x84 | byte(t)<<3, index&7<<3 | base&7}
	x.bytes(fmt.Sprintf(format, x.m(m), t), binary.LittleEndian.AppendUint32(code, uint32(m.off+m.vectors*x.target.bytes()))...)
}

func (x x86) tileLoad(t int, m mem) { x.tileMemory("TILELOADD %s, T%d", vexF2, t, m) }

func (x x86) tileStore(t int, m mem) { x.tileMemory("TILESTORED T%[2]d, %[1]s", vexF3, t, m) }

func (x x86) tileZero(t int) {
	x.bytes(fmt.Sprintf("TILEZERO T%d", t), 0xc4, 0xe2, vexF2, 0x49, 0xc0|byte(t)<<3)
}

// tileProduct emits C += A*B.
func (x x86) tileProduct(c, a, b int) {
	x.bytes(fmt.Sprintf("TDPBF16PS T%d, T%d, T%d", b, a, c), 0xc4, 0xe2, vexF3&^(byte(b)<<3), 0x5c, 0xc0|byte(c)<<3|byte(a))
}

func (x x86) tileConfig(at reg) {
	x.bytes(fmt.Sprintf("LDTILECFG (%s)", x.register(at)), 0xc4, 0xe2, vexNone, 0x49, places[x.register(at)])
}

func (x x86) tileRelease() { x.bytes("TILERELEASE", 0xc4, 0xe2, vexNone, 0x49, 0xc0) }
