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
	arrangement = regexp.MustCompile(`\.(\d+)([BHSD])`)
)

// Every instruction that is written as a number is the one that its comment says. The package that decodes knows all that are in use: one that it
// does not know fails. Numbers without a comment are constants, in symbols that hold nothing else.
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

// decoded returns an instruction in the spelling of Go's assembler: the destination last, and the arrangement behind the register.
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

// Some codes from the architecture's manual: the test above would find a wrong register, element or operation.
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
