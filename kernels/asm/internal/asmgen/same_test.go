package asmgen

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var parent = flag.String("parent", "", "root of a checkout of another commit, whose generated text TestSameText compares with this one's")

// TestSameText checks that each set has the same text as in another commit. Names of operands may
// differ, whole functions may be gone, and text may have moved into a macro. So a set that no CPU
// at hand runs can be shown to be unchanged:
//
//	go test ./kernels/asm/internal/asmgen -run TestSameText/avx512 -parent DIR
func TestSameText(t *testing.T) {
	if *parent == "" {
		t.Skip("no -parent DIR")
	}
	for _, set := range slices.Concat(x86Sets, armSets) {
		t.Run(set.name, func(t *testing.T) {
			dir := filepath.Join(*parent, "kernels", "asm")
			was, err := os.ReadFile(filepath.Join(dir, set.fileName("s")))
			if err != nil {
				t.Fatalf("%v: want the root of a checkout", err)
			}
			old := functions(string(was), func(name string) string {
				text, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				return string(text)
			})
			files := Files()
			now := functions(files[set.fileName("s")], func(name string) string { return files[name] })
			for _, difference := range differences(old, now) {
				t.Error(difference)
			}
			gone := 0
			for name := range old {
				if now[name] == nil {
					gone++
				}
			}
			t.Logf("%d functions and constants, %d of the parent's are gone", len(now), gone)
		})
	}
}

// functions returns the lines of each function and constant by name, without comments, and with
// headers and macros expanded.
func functions(text string, include func(name string) string) map[string][]string {
	all, macros := map[string][]string{}, map[string]string{}
	name, skipping := "", false
	var read func(text string)
	read = func(text string) {
		for line := range strings.SplitSeq(text, "\n") {
			if at := strings.Index(line, "//"); at >= 0 && !codes.MatchString(line) {
				line = line[:at]
			}
			line = strings.TrimSpace(line)
			words := strings.Fields(line)
			switch {
			case line == "":
				continue
			case words[0] == "#ifdef":
				_, defined := macros[words[1]]
				skipping = !defined
				continue
			case words[0] == "#endif":
				skipping = false
				continue
			case skipping:
				continue
			case words[0] == "#define":
				macros[words[1]] = strings.Join(words[2:], " ")
				continue
			case words[0] == "#undef":
				delete(macros, words[1])
				continue
			case words[0] == "#include":
				if file := strings.Trim(words[1], `"`); strings.HasPrefix(file, "loops_") {
					read(include(file))
				}
				continue
			}
			line = word.ReplaceAllStringFunc(line, func(w string) string {
				if to, ok := macros[w]; ok {
					return to
				}
				return w
			})
			if m := symbol.FindStringSubmatch(line); m != nil {
				name = m[1]
			}
			if name != "" {
				all[name] = append(all[name], strings.Join(strings.Fields(line), " "))
			}
		}
	}
	read(text)
	return all
}

var (
	codes  = regexp.MustCompile(`^\t(WORD|BYTE)`) // instructions whose comment says what they are
	word   = regexp.MustCompile(`\b[A-Z][A-Z0-9]*\b`)
	symbol = regexp.MustCompile(`^(?:TEXT|DATA|GLOBL) ·?([A-Za-z0-9]+)`)
	// Names of operands in package asm: fields, arguments with offsets, and sizes of arguments.
	operandName = regexp.MustCompile(`\([A-Z]\w*_\w+(?:\+\w+)*\)\(|\b\w+\+\d+\(FP\)|-\d+$`)
)

// differences describes the functions that differ from those of a parent. Operands may have other
// names, if within a function each name always replaces the same name of the parent's. Functions
// may be gone.
func differences(old, now map[string][]string) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(now)) {
		was, is := old[name], now[name]
		if was == nil {
			all = append(all, name+": the parent has no such function")
			continue
		}
		if len(was) != len(is) {
			all = append(all, fmt.Sprintf("%s: %d lines, the parent has %d", name, len(is), len(was)))
			continue
		}
		forth, back := map[string]string{}, map[string]string{}
		for i, line := range is {
			names, others := operandName.FindAllString(line, -1), operandName.FindAllString(was[i], -1)
			same := len(names) == len(others) && operandName.ReplaceAllString(line, "@") == operandName.ReplaceAllString(was[i], "@")
			for j := 0; same && j < len(names); j++ {
				n, o := names[j], others[j]
				same = forth[o] == "" && back[n] == "" || forth[o] == n && back[n] == o
				forth[o], back[n] = n, o
			}
			if !same {
				all = append(all, fmt.Sprintf("%s: line %d is %q, the parent's %q", name, i+1, line, was[i]))
				break
			}
		}
	}
	return all
}

// TestDifferences checks which texts TestSameText accepts as the same.
func TestDifferences(t *testing.T) {
	const old = `// func f(p *Panel)
TEXT ·f(SB), NOSPLIT, $8-8
	MOVQ p+0(FP), AX
	MOVQ (Panel_K+Rows_Data)(AX), BX
	MOVQ (Panel_P)(AX), DX
	VFMADD231PS 64(BX), Z0, Z1
	PREFETCHNTA 128(BX)
	BYTE $0xc4; BYTE $0xe2 // TILEZERO T1
	VMOVUPS one<>(SB), Z2
	RET

// func g()
TEXT ·g(SB), NOSPLIT, $0-0
	RET

DATA one<>+0(SB)/8, $0x3f8000003f800000
`
	without := strings.Split(old, "// func g()")[0] + "DATA one<>+0(SB)/8, $0x3f8000003f800000\n"
	header := "// func F(p *Panel)\n" + strings.NewReplacer("·f", "F", "PREFETCHNTA", "HINT", "\tRET", "#ifdef MORE\n\tNOP\n#endif\n\tRET").Replace(without[strings.Index(without, "TEXT"):strings.Index(without, "DATA")])
	for _, c := range []struct {
		name, now string
		want      string // in the only difference; "" for none
	}{
		{"the same", old, ""},
		{"other comments", strings.ReplaceAll(old, "// func", "// the function"), ""},
		{"a function gone", without, ""},
		{"another field", strings.ReplaceAll(old, "(Panel_P)", "(Scores_P)"), ""},
		{"another argument, elsewhere", strings.ReplaceAll(strings.ReplaceAll(old, "p+0(FP)", "call+8(FP)"), "$8-8", "$8-16"), ""},
		{"a macro", "#define HINT PREFETCHNTA\n#define F ·f\n#include \"loops_x.h\"\n#undef F\n" + without[strings.Index(without, "DATA"):], ""},
		{"another macro", "#define HINT PREFETCHT1\n#define F ·f\n#include \"loops_x.h\"\n#undef F\n", "line 6"},
		{"a macro with more", "#define MORE\n#define HINT PREFETCHNTA\n#define F ·f\n#include \"loops_x.h\"\n#undef F\n", "10 lines, the parent has 9"},
		{"two fields in one", strings.ReplaceAll(old, "(Panel_P)", "(Panel_K+Rows_Data)"), "line 4"},
		{"a field that changes on the way", strings.Replace(old, "\tRET", "\tMOVQ (Panel_P)(AX), DX\n\tRET", 1), "10 lines"},
		{"another register", strings.ReplaceAll(old, ", Z1", ", Z3"), "line 5"},
		{"another displacement", strings.ReplaceAll(old, "64(BX)", "128(BX)"), "line 5"},
		{"another base of a field", strings.ReplaceAll(old, "(Panel_P)(AX)", "(Panel_P)(CX)"), "line 4"},
		{"another frame", strings.ReplaceAll(old, "$8-8", "$16-8"), "line 1"},
		{"another code", strings.ReplaceAll(old, "T1", "T2"), "line 7"},
		{"another constant", strings.ReplaceAll(old, "one<>(", "two<>("), "line 8"},
		{"another value", strings.ReplaceAll(old, "0x3f8", "0x3f9"), "one: line 1"},
		{"a new function", old + "TEXT ·h(SB), NOSPLIT, $0-0\n\tRET\n", "h: the parent has no such function"},
	} {
		read := func(text string) map[string][]string {
			return functions(text, func(string) string { return header })
		}
		got := differences(read(old), read(c.now))
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
