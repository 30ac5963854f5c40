package mutants_test

import (
	"testing"

	"attnlab/attn/attntest"
	"attnlab/attn/attntest/mutants"
)

// The healthy kernels pass the suite, so it is the bug that kills a mutant and nothing else.
func TestHealthy(t *testing.T) {
	blocked, claims := mutants.Blocked()
	attntest.Run(t, blocked, claims, attntest.Options{})
	prefix, claims := mutants.Prefix()
	attntest.Run(t, prefix, claims, attntest.Options{})
}

// The suite finds every bug. With -short it is asked about every fourth one.
func TestKilled(t *testing.T) {
	all := mutants.All()
	if len(all) < 20 {
		t.Errorf("%d mutants, want 20 or more", len(all))
	}
	names := map[string]bool{}
	for i, m := range all {
		if names[m.Name] {
			t.Errorf("two mutants are called %s", m.Name)
		}
		names[m.Name] = true
		if testing.Short() && i%4 > 0 {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			s := attntest.Subject{Kernel: m.Kernel, Claims: m.Claims, Short: true}
			check, err := s.Examine()
			if err == nil {
				t.Fatalf("lives: %s", m.Why)
			}
			t.Logf("killed by %s: %v", check, err)
		})
	}
}
