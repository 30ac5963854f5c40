package asmgen

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/arch/arm64/arm64asm"
)

var (
	number      = regexp.MustCompile(`\b(WORD|LONG|BYTE|QUAD)\b`)
	dataLine    = regexp.MustCompile(`^\t(QUAD \$0x[0-9a-f]{16}|PCALIGN \$64)$`)
	wordLine    = regexp.MustCompile(`^\tWORD \$(0x[0-9a-f]{8}) // (V[A-Z]+) (.+)$`)
	bytesLine   = regexp.MustCompile(`^\t(BYTE \$0x[0-9a-f]{2}(?:; BYTE \$0x[0-9a-f]{2})*) // ([A-Z0-9]+.*)$`)
	arrangement = regexp.MustCompile(`\.(\d+)([BHSD])`)
)

// TestWords checks that every instruction that is written as a number is the one in its comment. A
// number that the decoder does not know fails. Numbers without a comment are constants, in symbols
// that hold nothing else.
func TestWords(t *testing.T) {
	for name, text := range Files() {
		words := map[string]int{} // by mnemonic
		constant := false
		for i, line := range strings.Split(text, "\n") {
			if strings.HasPrefix(line, "TEXT ") {
				constant = strings.Contains(line, "<>(SB)")
			} else if constant && strings.HasPrefix(line, "\t") {
				if !dataLine.MatchString(line) {
					t.Errorf("%s:%d: %q among constants", name, i+1, line)
				}
				continue
			}
			if !number.MatchString(line) {
				continue
			}
			if m := bytesLine.FindStringSubmatch(line); m != nil {
				if got := tileInstruction(bytesOf(m[1])); got != m[2] {
					t.Errorf("%s:%d: %q is %s", name, i+1, line, got)
				}
				words[strings.Fields(m[2])[0]]++
				continue
			}
			m := wordLine.FindStringSubmatch(line)
			if m == nil {
				t.Errorf("%s:%d: %q has no instruction beside it", name, i+1, line)
				continue
			}
			code, err := strconv.ParseUint(m[1], 0, 32)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := decoded(uint32(code)), m[2]+" "+m[3]; got != want {
				t.Errorf("%s:%d: %#x is %s, and the comment says %s", name, i+1, code, got, want)
			}
			words[m[2]]++
		}
		if len(words) > 0 {
			t.Logf("%s: %v", name, words)
		}
	}
}

// bytesOf returns the bytes of a line's BYTE directives.
func bytesOf(line string) (code []byte) {
	for s := range strings.SplitSeq(line, "; ") {
		b, err := strconv.ParseUint(strings.TrimPrefix(s, "BYTE $"), 0, 8)
		if err != nil {
			panic(err)
		}
		code = append(code, byte(b))
	}
	return code
}

// tileInstruction decodes an AMX instruction, which the decoder for others does not know. As
// Intel's manual says, it is a VEX prefix of three bytes for 128 bits and the map 0F38, an opcode,
// and a byte with the operands. In some cases a second such byte and a displacement follow.
func tileInstruction(code []byte) string {
	registers := strings.Fields("AX CX DX BX SP BP SI DI R8 R9 R10 R11 R12 R13 R14 R15")
	if len(code) < 5 || code[0] != 0xc4 || code[1]&0x1f != 2 || code[2]&0x84 != 0 {
		return "no VEX prefix of map 0F38, W0, 128 bits"
	}
	high := func(bit int) int { return int(^code[1]>>bit&1) << 3 }
	other, prefix := int(^code[2]>>3&15), code[2]&3 // vvvv; none, 66, F3, F2
	mode, reg, rm := code[4]>>6, int(code[4]>>3&7)+high(7), int(code[4]&7)
	switch rest := code[5:]; {
	case code[3] == 0x5c && prefix == 2 && mode == 3 && len(rest) == 0 && other < 8 && high(5) == 0:
		return fmt.Sprintf("TDPBF16PS T%d, T%d, T%d", other, rm, reg)
	case other != 0:
		return "an operand that there is not"
	case code[3] == 0x49 && prefix == 3 && mode == 3 && rm == 0 && len(rest) == 0:
		return fmt.Sprintf("TILEZERO T%d", reg)
	case code[3] == 0x49 && prefix == 0 && code[4] == 0xc0 && len(rest) == 0:
		return "TILERELEASE"
	case code[3] == 0x49 && prefix == 0 && mode == 0 && reg == 0 && rm != 4 && rm != 5 && len(rest) == 0:
		return fmt.Sprintf("LDTILECFG (%s)", registers[rm+high(5)])
	case code[3] == 0x4b && prefix >= 2 && mode == 2 && rm == 4 && len(rest) == 5:
		base, index := int(rest[0]&7)+high(5), int(rest[0]>>3&7)+high(6)
		at := fmt.Sprintf("(%s)(%s*%d)", registers[base], registers[index], 1<<(rest[0]>>6))
		if off := int32(binary.LittleEndian.Uint32(rest[1:])); off != 0 {
			at = fmt.Sprint(off, at)
		}
		if prefix == 2 {
			return fmt.Sprintf("TILESTORED T%d, %s", reg, at)
		}
		return fmt.Sprintf("TILELOADD %s, T%d", at, reg)
	}
	return "no instruction of tiles that is in use"
}

// TestTileInstruction checks tileInstruction on codes that another assembler writes.
func TestTileInstruction(t *testing.T) {
	for code, want := range map[string]string{
		"\xc4\xe2\x7b\x49\xd8":                     "TILEZERO T3",
		"\xc4\xe2\x78\x49\xc0":                     "TILERELEASE",
		"\xc4\xe2\x78\x49\x00":                     "LDTILECFG (AX)",
		"\xc4\xe2\x52\x5c\xdc":                     "TDPBF16PS T5, T4, T3",
		"\xc4\xc2\x7b\x49\xc0":                     "TILEZERO T0",
		"\xc4\xa2\x7b\x4b\xb4\x08\x00\x04\x00\x00": "TILELOADD 1024(AX)(R9*1), T6",
		"\xc4\x82\x7a\x4b\x84\x31\x00\x00\x00\x00": "TILESTORED T0, (R9)(R14*1)",
	} {
		if got := tileInstruction([]byte(code)); got != want {
			t.Errorf("%x is %s, want %s", code, got, want)
		}
	}
}

// decoded returns an instruction in the spelling of Go's assembler: the destination last, and the
// arrangement after the register.
func decoded(code uint32) string {
	inst, err := arm64asm.Decode(binary.LittleEndian.AppendUint32(nil, code))
	if err != nil {
		return err.Error()
	}
	var args []string
	for _, a := range inst.Args {
		if a != nil {
			args = append(args, arrangement.ReplaceAllString(strings.Replace(a.String(), "#", "$", 1), ".$2$1"))
		}
	}
	slices.Reverse(args)
	return fmt.Sprintf("V%s %s", inst.Op, strings.Join(args, ", "))
}

// TestDecoded checks decoded on codes from the architecture's manual, so that TestWords finds a
// wrong register, element or operation.
func TestDecoded(t *testing.T) {
	for code, want := range map[uint32]string{
		0x4f851080: "VFMLA V5.S[0], V4.S4, V0.S4",
		0x4fa51880: "VFMLA V5.S[3], V4.S4, V0.S4",
		0x4f9f13e0: "VFMLA V31.S[0], V31.S4, V0.S4",
		0x4e22d420: "VFADD V2.S4, V1.S4, V0.S4",
		0x4ea2d420: "VFSUB V2.S4, V1.S4, V0.S4",
		0x6e22dc20: "VFMUL V2.S4, V1.S4, V0.S4",
		0x0e217820: "VFCVTL V1.H4, V0.S4",
		0x2e613820: "VSHLL $16, V1.H4, V0.S4",
		0x0f08a420: "VSXTL V1.B8, V0.H8",
		0x4e21d820: "VSCVTF V1.S4, V0.S4",
	} {
		if got := decoded(code); got != want {
			t.Errorf("%#x is %s, want %s", code, got, want)
		}
	}
}
