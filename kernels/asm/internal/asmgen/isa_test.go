package asmgen

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestCapabilities checks a set without a capability. It must have the loops that do not need the
// capability, and its table must leave out the others. No loop may use a capability that it does
// not declare.
func TestCapabilities(t *testing.T) {
	for _, set := range []*target{avx2, avx512, neon} {
		whole := newGen(set)
		whole.all()
		for capability, remove := range map[string]func(c *capabilities){
			"ordered":     func(c *capabilities) { c.ordered = nil },
			"bitwise":     func(c *capabilities) { c.bitwise = nil },
			"single":      func(c *capabilities) { c.single = nil },
			"paired":      func(c *capabilities) { c.paired = nil },
			"celled":      func(c *capabilities) { c.celled = nil },
			"summing":     func(c *capabilities) { c.summing = nil },
			"dividing":    func(c *capabilities) { c.dividing = nil },
			"transposing": func(c *capabilities) { c.transposing = nil },
			"hinting":     func(c *capabilities) { c.hinting = nil },
		} {
			t.Run(set.name+"/"+capability, func(t *testing.T) {
				g := newGen(set)
				remove(&g.capabilities)
				g.all()
				g.declarations(g.table())
				if text := g.assembly() + g.shared.String(); capability == "hinting" {
					if strings.Contains(text, "PREFETCH") && strings.Count(text, "PREFETCH") != strings.Count(text, "#define HINT PREFETCH") || strings.Contains(text, "PRFM") {
						t.Error("a set without hints prefetches")
					}
					return
				}
				if len(g.declared) >= len(whole.declared) {
					t.Errorf("%d loops, as with it", len(g.declared))
				}
				for _, loop := range []string{"Score1", "Mix1", "DScore1", "Peak", "Chain", "Slots"} {
					if !g.declared[loop] {
						t.Errorf("%s is missing", loop)
					}
				}
				table := g.table()
				for loop := range whole.declared {
					if !g.declared[loop] && strings.Contains(table, set.name+loop+",") {
						t.Errorf("the table has %s", loop)
					}
				}
			})
		}
	}
}

// TestOnly checks that a set may supply a single loop.
func TestOnly(t *testing.T) {
	for only, want := range map[string][]string{
		"Score": {"Score1", "Score2", "Score3"},
		"Top":   {"Top"},
		"Dot":   {"DotBF16NonTemporal", "DotF16NonTemporal", "DotI8NonTemporal", "DotNonTemporal", "ScaleKeys", "SumBF16NonTemporal", "SumF16NonTemporal", "SumI8NonTemporal", "SumNonTemporal"},
	} {
		toy := *avx2
		toy.name, toy.only, toy.readings = "toy", []string{only}, avx2.readings[:1]
		g := newGen(&toy)
		g.all()
		if got := slices.Sorted(maps.Keys(g.declared)); !slices.Equal(got, want) {
			t.Errorf("%s alone: %v, want %v", only, got, want)
		}
		if got, want := strings.Count(g.assembly(), "\nTEXT ·"), len(want); got != want {
			t.Errorf("%s alone: %d functions, want %d", only, got, want)
		}
		g.declarations(g.table())
	}
}

// TestLength checks that loops over whole vectors do not depend on the vectors' length, where the
// set's spelling does not fix it.
func TestLength(t *testing.T) {
	loops := map[string]func(g *gen){"Finite": (*gen).finite, "Inverse": (*gen).inverse, "Peak": (*gen).peak}
	for name, emit := range loops {
		var texts []string
		for _, floats := range []int{4, 16} {
			set := *avx512
			set.vec = floats
			set.spell = func(f *file) isa { return symbolic{x86{f, "Z"}} }
			g := newGen(&set)
			emit(g)
			texts = append(texts, g.text.String())
		}
		if texts[0] != texts[1] {
			t.Errorf("%s of 4 and of 16 floats in a vector differ:\n%s\n%s", name, texts[0], texts[1])
		}
		if strings.Contains(texts[0], "VMOVUPS") && !strings.Contains(texts[0], "VL") {
			t.Errorf("%s does not know how long a vector is:\n%s", name, texts[0])
		}
	}
}

// symbolic spells a set whose vectors have a length, VL, that is not known before the program runs.
type symbolic struct{ x86 }

func (s symbolic) m(m mem) string {
	n := m.vectors
	m.vectors = 0
	if n != 0 {
		return fmt.Sprintf("%d*VL+%s", n, s.x86.m(m))
	}
	return s.x86.m(m)
}

func (s symbolic) o(o operand) string {
	if m, ok := o.(mem); ok {
		return s.m(m)
	}
	return s.x86.o(o)
}

func (s symbolic) load(dst vec, from operand) { s.emit("VMOVUPS", s.o(from), s.v(dst)) }
func (s symbolic) store(m mem, src vec)       { s.emit("VMOVUPS", s.v(src), s.m(m)) }
func (s symbolic) fma(acc, a vec, b operand)  { s.emit("VFMADD231PS", s.o(b), s.v(a), s.v(acc)) }
func (s symbolic) step(dst reg, vectors int)  { s.emit("ADDVL", imm(vectors), s.register(dst)) }
