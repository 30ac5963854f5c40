package run

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// TestPlainer checks which points a point is measured against: each differs from it in one thing.
func TestPlainer(t *testing.T) {
	for _, c := range []struct {
		point Point
		want  []string
	}{
		{Point{}, nil},
		{Point{Mask: "causal", Batch: 3, Threads: 2, Layout: "bshd"}, nil},
		{Point{Features: "lse+alibi"}, []string{"alibi+lse: "}},
		{
			Point{Features: "bias", Store: "int8", Page: 16, HeadsQ: 4, HeadsKV: 2, Mask: "window:8:0"},
			[]string{"bias: ", "store int8: bias", "page 16: bias", "kv-heads 2: bias", "window:8:0: bias"},
		},
		{Point{Features: "ragged"}, []string{"ragged: ragged-alone"}},
		{Point{Features: "bias+ragged:9+lse"}, []string{"bias+ragged:9+lse: bias+ragged-alone:9+lse"}},
		{Point{Features: "ragged-alone:9", Store: "f16"}, []string{"store f16: ragged-alone:9"}},
		{Point{Kernel: "linear", Op: "linear"}, nil},
		{Point{Kernel: "linear", Op: "linear", Features: "relu+1"}, []string{"relu+1: elu+1"}},
		{Point{Kernel: "linear", Op: "linear", Mask: "causal", Rule: "kda"}, []string{"rule kda: elu+1"}},
		{Point{Kernel: "linear", Op: "linear", Mask: "causal", Rule: "kda", SeqQ: 1}, nil},
		{
			Point{Kernel: "linear", Op: "linear", Mask: "causal", Rule: "ssd", Features: "relu+1+unnormalised"},
			[]string{"relu+1+unnormalised: identity+unnormalised", "rule ssd: relu+1+unnormalised"},
		},
	} {
		p := c.point
		p.ISA, p.SeqKV, p.Dim = "go", 64, 8
		if p.Rule != "" && p.SeqQ == 1 {
			p.SeqKV = 1
		}
		if p.Kernel == "" {
			p.Kernel = "flash"
		}
		var got []string
		for _, way := range p.WithDefaults().plainer() {
			got = append(got, fmt.Sprintf("%s: %s", way.without, way.point.Features))
			if err := way.point.Validate(); err != nil {
				t.Error(err)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.point, got, c.want)
		}
	}
}

// TestCosts checks that rounds are compared one by one, so that a slow round, which slows down both
// points and their probes, does not change the cost.
func TestCosts(t *testing.T) {
	r := newRun("", Meta{})
	plan := func(p Point, flop int64) string {
		p.Kernel, p.ISA, p.SeqKV, p.Dim = "flash", "go", 64, 8
		p = p.WithDefaults()
		r.add(&Record{Plan: &Plan{Point: p, Flop: flop}})
		return p.Name()
	}
	plain, half := plan(Point{}, 1000), plan(Point{Features: "bool:0.5"}, 500)
	visit := func(name string, round int, cpu int64, probe float64, unit string) {
		r.add(&Record{Visit: &Visit{Point: name, Round: round, Calls: 2, Wall: 9 * cpu, CPU: cpu, Before: probe, After: probe, Unit: unit}})
	}
	for round := range 7 {
		slow := int64(1 + round%3)
		visit(plain, round, 100*slow, 1e9/float64(slow), ProbeFlop)
		visit(half, round, 80*slow, 1e9/float64(slow), ProbeFlop)
	}
	visit(half, 7, 1, 1e9, ProbeFlop) // a round without the other point
	decode, typed := plan(Point{SeqQ: 1}, 1000), plan(Point{SeqQ: 1, Store: "f16"}, 1000)
	for round := range 2 {
		visit(decode, round, 100, 1e9, ProbeBytes)
		visit(typed, round, 40, 2e9, ProbeBytes)
	}
	plan(Point{Features: "lse"}, 1000) // never measured
	costs := r.Costs()
	if len(costs) != 2 {
		t.Fatalf("%+v", costs)
	}
	if c := costs[0]; c.What != "bool:0.5" || c.Rounds != 7 || math.Abs(c.Speed-0.625) > 1e-9 || math.Abs(c.Lo-0.625) > 1e-9 || math.Abs(c.Hi-0.625) > 1e-9 {
		t.Errorf("%+v", c)
	}
	if c := costs[1]; c.What != "store f16" || c.Rounds != 2 || math.Abs(c.Speed-2.5) > 1e-9 || Known(c.Lo) || Known(c.Hi) {
		t.Errorf("%+v", c)
	}
}
