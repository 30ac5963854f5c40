package asmgen

import (
	"fmt"
	"slices"
)

// A reg is an integer register by its role. Roles that are never live together may share a
// register; each set maps roles to registers.
//
// A nest takes the roles that it uses, and frees a role before it takes another one in the same
// register.
type reg string

// A span gives a role to n vector registers, starting at first.
type span struct {
	role  string
	first vec
	n     int
}

// registers tracks the live roles while a function is emitted. The next function begins with none.
type registers struct {
	live  []reg
	spans []span
}

// take makes roles live. It panics if a role is live already, or if another live role has its
// register.
func (f *file) take(roles ...reg) {
	for _, role := range roles {
		place, ok := f.roles[role]
		if !ok {
			panic(fmt.Errorf("asmgen: %s%s: the set has no register for %s", f.name, f.current, role))
		}
		f.unused(place, string(role))
		f.live = append(f.live, role)
	}
}

// unused panics if a live role has the register that another role or an instruction needs.
func (f *file) unused(place, role string) {
	for _, other := range f.live {
		if f.roles[other] == place {
			panic(fmt.Errorf("asmgen: %s%s: %s and %s are both in %s: free one of them first", f.name, f.current, other, role, place))
		}
	}
}

// free ends the life of roles.
func (f *file) free(roles ...reg) {
	for _, role := range roles {
		i := slices.Index(f.live, role)
		if i < 0 {
			panic(f.dead(string(role)))
		}
		f.live = slices.Delete(f.live, i, i+1)
	}
}

// register returns the register of a role, which must be live.
func (f *file) register(role reg) string {
	if !slices.Contains(f.live, role) {
		panic(f.dead(string(role)))
	}
	return f.roles[role]
}

func (f *file) dead(role string) error {
	return fmt.Errorf("asmgen: %s%s: %s is not live: take it first", f.name, f.current, role)
}

// vectors makes roles of vector registers live. It panics if the set has too few registers, or if
// one of them has a live role.
func (f *file) vectors(spans ...span) {
	for _, s := range spans {
		if int(s.first)+s.n > f.regs {
			panic(fmt.Errorf("asmgen: %s%s: %s are vectors %d to %d: the set has %d", f.name, f.current, s.role, s.first, int(s.first)+s.n-1, f.regs))
		}
		for _, other := range f.spans {
			if s.first < other.first+vec(other.n) && other.first < s.first+vec(s.n) {
				panic(fmt.Errorf("asmgen: %s%s: %s and %s are both in vector %d: free one of them first", f.name, f.current, other.role, s.role, max(s.first, other.first)))
			}
		}
		f.spans = append(f.spans, s)
	}
}

// freeVectors ends the life of roles of vector registers, or of all if none is named.
func (f *file) freeVectors(roles ...string) {
	if len(roles) == 0 {
		f.spans = nil
	}
	for _, role := range roles {
		i := slices.IndexFunc(f.spans, func(s span) bool { return s.role == role })
		if i < 0 {
			panic(f.dead(role))
		}
		f.spans = slices.Delete(f.spans, i, i+1)
	}
}

// number returns the number of a vector register. It must have a live role, or be one that the
// set's spelling reserves.
func (f *file) number(v vec) int {
	if int(v) >= f.regs {
		return int(v)
	}
	for _, s := range f.spans {
		if s.first <= v && v < s.first+vec(s.n) {
			return int(v)
		}
	}
	panic(fmt.Errorf("asmgen: %s%s: vector %d has no role that is live", f.name, f.current, v))
}
