package attntest

import (
	"runtime/debug"
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/attn/oracle"
)

// Run is the suite. With -short it takes half of the core cases, and tries the laws on fewer calls;
// where the core is enough, an eighth of its cases and a quarter of the other checks.
func Run(t *testing.T, k attn.Kernel, claims attn.Needs, o Options) {
	algo, isa := k.Name()
	s := &Subject{Kernel: k, Claims: claims, Options: o, Short: o.Core || testing.Short()}
	nthCase, nthCheck := uint64(1), 1
	if testing.Short() {
		nthCase = 2
		if o.Core {
			nthCase, nthCheck = 8, 4
		}
	}
	t.Run(algo+"/"+isa, func(t *testing.T) {
		// Each case makes its operands anew in a heap that is nearly empty, which would be
		// collected a thousand times.
		percent := debug.SetGCPercent(800)
		defer debug.SetGCPercent(percent)
		for i, c := range Checks() {
			if i%nthCheck != 0 || c.Ours && o.Peer {
				continue
			}
			t.Run(c.Name, func(t *testing.T) {
				if err := c.Run(s); err != nil {
					t.Error(err)
				}
			})
		}
		t.Run("values", func(t *testing.T) { judged(t, s, nthCase, s.Covers, s.Value) })
		t.Run("gradients", func(t *testing.T) { judged(t, s, nthCase, s.differentiated, s.Gradient) })
	})
}

// judged runs one in nth of the cases that the claims cover in some form. A family whose tolerances
// are all too wide to judge by fails.
func judged(t *testing.T, s *Subject, nth uint64, form func(cases.Case) (cases.Case, bool), judge func(cases.Case) (oracle.Verdict, error)) {
	all := map[string]*oracle.Verdict{}
	ran := map[string]int{}
	for _, c := range s.cases() {
		family := c.Family
		c, ok := form(c)
		if !ok || c.Seed()%nth != 0 {
			continue
		}
		ran[family]++
		t.Run(c.String(), func(t *testing.T) {
			v, err := judge(c)
			if err != nil {
				t.Error(err)
			}
			if all[family] == nil {
				all[family] = new(oracle.Verdict)
			}
			all[family].Join(v)
		})
	}
	for _, f := range cases.Families() {
		v := all[f]
		if v == nil { // none ran, or -run left out all
			continue
		}
		t.Logf("%-9s %4d cases, worst error %.3f of the tolerance, %d of %d numbers not judged", f, ran[f], v.Worst, v.Numbers-v.Judged, v.Numbers)
		if v.Judged == 0 && v.Numbers > 0 {
			t.Errorf("%s: none of %d numbers has a tolerance that is narrow enough to judge by", f, v.Numbers)
		}
	}
}

// cases are those of the suite.
func (s *Subject) cases() []cases.Case {
	if s.Short {
		return cases.Core()
	}
	return cases.All()
}

// Examine is the suite without package testing: it runs the claims, then the values, on the core
// cases when Short, then everything else, and returns the name of the first check that fails, with
// its error.
func (s *Subject) Examine() (check string, err error) {
	run := func(claims bool) (string, error) {
		for _, c := range Checks() {
			if c.Ours && s.Options.Peer || strings.HasPrefix(c.Name, "claims/") != claims || s.Backward && !strings.HasPrefix(c.Name, "gradients/") {
				continue
			}
			if err := c.Run(s); err != nil {
				return c.Name, err
			}
		}
		return "", nil
	}
	if check, err := run(true); err != nil {
		return check, err
	}
	for _, c := range s.cases() {
		if v, ok := s.Covers(c); ok && !s.Backward {
			if _, err := s.Value(v); err != nil {
				return "values/" + v.String(), err
			}
		}
		if g, ok := s.differentiated(c); ok {
			if _, err := s.Gradient(g); err != nil {
				return "gradients/" + g.String(), err
			}
		}
	}
	return run(false)
}
