package mutants_test

import (
	"testing"

	"attnlab/attn"
	"attnlab/attn/attntest"
	"attnlab/attn/attntest/mutants"
)

// TestHealthy checks that the healthy kernels pass the suite, so that only the bug kills a mutant.
// With -short it checks one of them.
func TestHealthy(t *testing.T) {
	kernels := []func() (attn.Kernel, attn.Needs){mutants.Blocked, mutants.Recurrence, mutants.Gradient}
	if testing.Short() {
		kernels = kernels[1:2]
	}
	for _, healthy := range kernels {
		kernel, claims := healthy()
		// with the options for mutants
		attntest.Run(t, kernel, claims, attntest.Options{Core: true})
	}
}

// victims are the mutants that each check must kill alone.
var victims = map[string]string{
	"claims/abilities":      "accepts_linear",
	"claims/cases":          "refuses_windows",
	"claims/malformed":      "takes_any_heads",
	"claims/thrift":         "check_allocates",
	"operands":              "unchecked",
	"laws/shift":            "lse_base2",
	"laws/permute":          "drop_tail",
	"laws/average":          "rescale_out",
	"laws/merge":            "lse_without_max",
	"laws/parts":            "sink_forgets_lse",
	"laws/alibi":            "alibi_mirrored",
	"laws/turn":             "rope_forgets_keys",
	"laws/neutral":          "metric_besides",
	"laws/int8":             "scale_of_neighbour",
	"laws/weights":          "weights_forget_sink",
	"laws/far":              "lowest_hides",
	"laws/far-parts":        "lse_rounded",
	"laws/decode":           "alibi_by_index",
	"laws/steps":            "state_in_ignored",
	"laws/snapshots":        "snapshots_reversed",
	"laws/recurrence":       "retrieves_undecayed",
	"bits/threads":          "blocks_by_workers",
	"bits/layouts":          "order_by_layout",
	"bits/batch":            "order_by_batch",
	"bits/heads":            "head_modulo",
	"bits/neighbours":       "max_from_last_row",
	"bits/rows":             "max_from_last_row",
	"bits/hidden":           "causal_off_by_one",
	"bits/capacity":         "align_by_capacity",
	"bits/bitmaps":          "order_by_mask",
	"bits/rounding":         "output_truncated",
	"bits/ragged":           "ragged_neighbour",
	"bits/pages":            "page_rows_reversed",
	"bits/ring":             "page_off_by_one",
	"bits/chunks":           "alibi_by_index",
	"gradients/operands":    "grad_unchecked",
	"gradients/threads":     "grad_rows_by_workers",
	"gradients/layouts":     "grad_rows_by_layout",
	"gradients/batch":       "grad_rows_by_batch",
	"gradients/leaks":       "grad_sees_next",
	"gradients/parts":       "grad_asks_for_all",
	"gradients/columns":     "grad_sees_next",
	"gradients/far":         "grad_weights_by_lse",
	"gradients/allocations": "grad_allocates",
	"concurrent":            "plans_differ",
	"allocations":           "allocates",
}

// TestKilled checks that the whole suite finds every bug, except those of victims, which
// TestEveryCheckKills covers. With -short it checks one mutant in sixteen.
func TestKilled(t *testing.T) {
	all := mutants.All()
	if len(all) < 20 {
		t.Errorf("%d mutants, want 20 or more", len(all))
	}
	alone := map[string]bool{}
	for _, name := range victims {
		alone[name] = true
	}
	names := map[string]bool{}
	for i, m := range all {
		if names[m.Name] {
			t.Errorf("two mutants are called %s", m.Name)
		}
		names[m.Name] = true
		if alone[m.Name] || testing.Short() && i%16 != 9 {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			s := attntest.Subject{Kernel: m.Kernel, Claims: m.Claims, Short: true, Backward: m.Backward}
			check, err := s.Examine()
			if err == nil {
				t.Fatalf("lives: %s", m.Why)
			}
			t.Logf("killed by %s: %v", check, err)
		})
	}
}

// TestEveryCheckKills checks that every check can fail: alone, it kills its victim. With -short it
// runs one check in four.
func TestEveryCheckKills(t *testing.T) {
	for i, c := range attntest.Checks() {
		if testing.Short() && i%4 != 0 {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			m, ok := mutants.ByName(victims[c.Name])
			if !ok {
				t.Fatalf("no mutant for this check: add one to victims")
			}
			s := attntest.Subject{Kernel: m.Kernel, Claims: m.Claims, Short: true}
			if err := c.Run(&s); err == nil {
				t.Errorf("%s lives", m.Name)
			}
		})
	}
}
