package asmgen

import (
	"fmt"
	"strings"
	"testing"
)

// TestRegisters checks that a nest panics and names the roles if it uses a register for two roles
// at a time, or for a role that is not live.
func TestRegisters(t *testing.T) {
	for _, c := range []struct {
		name string
		nest func(g *gen)
		want string // "" for none
	}{
		{"one after the other", func(g *gen) {
			g.take(aux)
			g.set(aux, 1)
			g.free(aux)
			g.take(refs)
			g.set(refs, 1)
		}, ""},
		{"two in one register", func(g *gen) { g.take(aux, refs) }, "avx2Nest: aux and refs are both in R12"},
		{"twice", func(g *gen) { g.take(aux, aux) }, "aux and aux are both in R12"},
		{"not taken", func(g *gen) { g.set(count, 1) }, "avx2Nest: count is not live"},
		{"freed", func(g *gen) {
			g.take(count)
			g.free(count)
			g.increase(count, 1)
		}, "count is not live"},
		{"freed twice", func(g *gen) {
			g.take(count)
			g.free(count, count)
		}, "count is not live"},
		{"of an instruction", func(g *gen) {
			g.vectors(span{"top", 0, 2})
			g.take(elemAt4)
			g.jumpAbove(0, 1, "over")
		}, "elemAt4 and flags are both in R15"},
		{"a role that the set lacks", func(g *gen) { g.take("nothing") }, "no register for nothing"},
		{"vectors side by side", func(g *gen) {
			g.vectors(span{"sums", 0, 4}, span{"temps", 4, 2})
			g.add(3, 4, vec(5))
		}, ""},
		{"vectors that overlap", func(g *gen) { g.vectors(span{"sums", 0, 4}, span{"temps", 3, 2}) }, "avx2Nest: sums and temps are both in vector 3"},
		{"vectors within others", func(g *gen) { g.vectors(span{"one", 2, 1}, span{"all", 0, 8}) }, "one and all are both in vector 2"},
		{"vectors not taken", func(g *gen) { g.zero(7) }, "vector 7 has no role that is live"},
		{"vectors freed", func(g *gen) {
			g.vectors(span{"sums", 0, 4}, span{"temps", 4, 2})
			g.freeVectors("sums")
			g.zero(0)
		}, "vector 0 has no role that is live"},
		{"vectors freed twice", func(g *gen) {
			g.vectors(span{"sums", 0, 4})
			g.freeVectors("sums", "sums")
		}, "sums is not live"},
		{"more vectors than there are", func(g *gen) { g.vectors(span{"sums", 12, 5}) }, "sums are vectors 12 to 16: the set has 16"},
		{"of the function before", func(g *gen) {
			g.take(count)
			g.function("Next", "()", 0, 0, "nothing")
			g.set(count, 1)
		}, "avx2Next: count is not live"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ""
			func() {
				defer func() {
					if r := recover(); r != nil {
						got = fmt.Sprint(r)
					}
				}()
				g := newGen(avx2)
				g.function("Nest", "()", 0, 0, "nothing")
				c.nest(g)
			}()
			if !strings.Contains(got, c.want) || c.want == "" && got != "" {
				t.Errorf("panics with %q, want %q", got, c.want)
			}
		})
	}
}
