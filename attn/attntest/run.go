package attntest

import (
	"flag"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/attn/oracle"
)

// whole makes the suite take every case, also where Options.Core is set; by default it takes the
// core and every third other case.
var whole = flag.Bool("whole", false, "conformance suite: every case, not the core and a third of the others")

// Run runs the suite. With -short it tests an eighth of the core cases, and a quarter of the other
// checks on fewer calls; with Options.Core too, a sixteenth and an eighth.
func Run(t *testing.T, k attn.Kernel, claims attn.Needs, o Options) {
	algo, isa := k.Name()
	o.Core = o.Core && !*whole
	s := &Subject{Kernel: k, Claims: claims, Options: o, Short: o.Core || testing.Short()}
	nthCase, nthCheck := uint64(1), 1
	if testing.Short() {
		nthCase, nthCheck = 8, 4
		if o.Core {
			nthCase, nthCheck = 16, 8
		}
	}
	t.Run(algo+"/"+isa, func(t *testing.T) {
		// Each case allocates its operands in a nearly empty heap. The default setting would
		// collect it a thousand times.
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

// judged runs one in nth of the cases that form accepts. A family fails if none of its numbers is
// judged.
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
		if v == nil { // none ran, or -run excluded all
			continue
		}
		t.Logf("%-9s %4d cases, worst error %.3f of the tolerance, %d of %d numbers not judged", f, ran[f], v.Worst, v.Numbers-v.Judged, v.Numbers)
		if v.Judged == 0 && v.Numbers > 0 {
			t.Errorf("%s: none of %d numbers has a tolerance that is narrow enough to judge by", f, v.Numbers)
		}
	}
}

// cases returns the cases of the suite.
func (s *Subject) cases() []cases.Case {
	if s.Short {
		return cases.Core()
	}
	return slices.DeleteFunc(cases.All(), func(c cases.Case) bool { return !*whole && !c.Core && c.Seed()%3 != 0 })
}

// Examine runs the suite without package testing: the claims, then the values, then everything
// else. It tests only the core cases if the subject is Short. It returns the name and the error of
// the first check that fails.
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
