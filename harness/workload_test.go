package harness_test

import (
	"slices"
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/attn/attntest/mutants"
	"attnlab/attn/cases"
	"attnlab/harness"
	"attnlab/harness/run"
	"attnlab/kernels/naive"
)

// verified runs a point once and checks every row.
func verified(t *testing.T, at run.Point) (*harness.Workload, harness.Job) {
	t.Helper()
	return verifiedOn(t, naive.New(), at)
}

// verifiedOn is verified with a kernel of its own.
func verifiedOn(t *testing.T, k attn.Kernel, at run.Point) (*harness.Workload, harness.Job) {
	t.Helper()
	w, err := harness.Attention(k, at)
	if err != nil {
		t.Fatalf("%s: %v", at.Name(), err)
	}
	j, err := w.Prepare()
	if err != nil {
		t.Fatalf("%s: %v", at.Name(), err)
	}
	t.Cleanup(func() { j.Close() })
	if err := j.Plan(); err != nil {
		t.Fatalf("%s: %v", at.Name(), err)
	}
	if _, err := j.Run(1); err != nil {
		t.Fatal(err)
	}
	if v, err := j.Check(1000, 1); err != nil || !(v.Worst <= 1) {
		t.Errorf("%s: %v, %+v", at.Name(), err, v)
	}
	return w, j
}

// TestWorkloads checks the answers of workloads with each feature and form of cache, for prefill
// and decode.
func TestWorkloads(t *testing.T) {
	for _, features := range []string{
		"", "alibi+sinks+softcap:3+temp:2", "relative-clipped:5", "metric-rect:5+bias", "rope+lengths", "bool", "packed:0.3+lse", "block:4:0.4+lengths",
		"ragged", "ragged-alone", "relative+rope-halves+ragged:7+lse+argmax", "relative+rope-halves+ragged-alone:7+lse+argmax", "bias+block:4:0.4+ragged-alone+lengths",
		"metric+packed:0.5+ragged-alone+lengths+entropy", "bias+bool+ragged-alone",
	} {
		for _, store := range []string{"f32", "bf16", "int8"} {
			for _, page := range []int{0, 8} {
				for _, seq := range [][2]int{{21, 21}, {1, 21}, {9, 21}} {
					at := run.Point{
						Kernel: "naive", ISA: "go", Mask: "causal", Batch: 3, HeadsQ: 2, HeadsKV: 1, SeqQ: seq[0], SeqKV: seq[1], Dim: 6,
						Features: features, Store: store, Page: page,
					}
					verified(t, at.WithDefaults())
				}
			}
		}
	}
}

// TestWorkloadCounts checks that a workload counts the pairs that its mask and lengths leave
// visible, and the memory of its mask.
func TestWorkloadCounts(t *testing.T) {
	at := run.Point{Kernel: "naive", ISA: "go", Batch: 2, SeqKV: 64, Dim: 8}
	pair := int64(2 * (8 + 8))
	for _, c := range []struct {
		features string
		pairs    int64
	}{
		{"", 2 * 64 * 64},
		{"block:16:0.5", 2 * 64 * 64 / 2},
		{"lengths", 64*40 + 64*56},
		{"ragged", 1 + 64*64},
		{"ragged-alone", 1 + 64*64},
		{"ragged:32", 32*32 + 64*64},
	} {
		at.Features = c.features
		w, _ := verified(t, at.WithDefaults())
		n, err := w.Count()
		if err != nil || n.Pairs != c.pairs || n.Flop != pair*c.pairs {
			t.Errorf("%q: %+v, %v; want %d pairs", c.features, n, err, c.pairs)
		}
	}
	plain, _ := verified(t, run.Point{Kernel: "naive", ISA: "go", SeqKV: 64, Dim: 8}.WithDefaults())
	for features, bytes := range map[string]int64{"bool": 64 * 64, "packed": 64 * 64 / 8} {
		w, _ := verified(t, run.Point{Kernel: "naive", ISA: "go", SeqKV: 64, Dim: 8, Features: features}.WithDefaults())
		if w.Operands-plain.Operands != bytes {
			t.Errorf("%s: %d bytes more than the plain point, want %d", features, w.Operands-plain.Operands, bytes)
		}
		n, _ := w.Count()
		if most := int64(64 * 64); n.Pairs >= most || n.Pairs < most*15/16 {
			t.Errorf("%s shows %d pairs of %d: want some hidden, few of them", features, n.Pairs, most)
		}
	}
}

// TestAloneHasPlansOfItsOwnLengths checks that sequences one by one take the scratch of plans of
// their own lengths.
func TestAloneHasPlansOfItsOwnLengths(t *testing.T) {
	at := run.Point{Kernel: "naive", ISA: "go", Batch: 3, SeqKV: 64, Dim: 8, Features: "ragged-alone:20"}.WithDefaults()
	w, j := verified(t, at)
	want := int64(0)
	for _, n := range []int{20, 42, 64} {
		s, err := naive.New().Check(attn.Problem{Batch: 1, SeqQ: n, SeqKV: n, HeadsQ: 1, HeadsKV: 1, Dim: 8, DimV: 8}, 1)
		if err != nil {
			t.Fatal(err)
		}
		want += s
	}
	if w.Scratch != want || j.Scratch() != want {
		t.Errorf("scratch %d and %d, want %d", w.Scratch, j.Scratch(), want)
	}
	at.Features = "ragged-alone+weights"
	if _, err := harness.Attention(naive.New(), at); err == nil || !strings.Contains(err.Error(), "as long as the capacity") {
		t.Errorf("weights of sequences one by one: %v", err)
	}
}

// TestRopeBeforeTheFirstKey checks that a rotation is refused where a query is before the first
// key, and nowhere else.
func TestRopeBeforeTheFirstKey(t *testing.T) {
	at := run.Point{Kernel: "naive", ISA: "go", SeqQ: 9, SeqKV: 4, Dim: 8, Features: "rope"}.WithDefaults()
	if _, err := harness.Attention(naive.New(), at); err == nil || !strings.Contains(err.Error(), "rope: 5 queries are before") {
		t.Errorf("%v", err)
	}
	at.Mask = "causal-topleft"
	verified(t, at)
	at.Mask, at.Features = "full", "rope+lengths"
	verified(t, at)
}

// TestRules checks the answers of workloads with each rule, forward and with gradients, and in
// ragged batches. A point that decodes updates a state in place, and counts it as read and written.
func TestRules(t *testing.T) {
	kernel, _ := mutants.Recurrence()
	algo, isa := kernel.Name()
	for _, rule := range run.Rules()[1:] {
		at := run.Point{
			Kernel: algo, ISA: isa, Op: "linear", Rule: rule, Mask: "causal", Batch: 3, HeadsQ: 2, HeadsKV: 1, HeadsV: 2, SeqKV: 21, Dim: 6, DimV: 5,
		}
		for _, with := range []string{"", "ragged:4", "ragged-alone:4"} {
			at.Features = with
			if _, j := verifiedOn(t, kernel, at.WithDefaults()); j.Updates() != nil {
				t.Errorf("%s with %q: got a state of %d numbers, want none", rule, with, len(j.Updates()))
			}
		}
		at.Features, at.Pass = "", "both"
		verifiedOn(t, kernel, at.WithDefaults())

		at.Pass, at.SeqKV = "forward", 1
		w, j := verifiedOn(t, kernel, at.WithDefaults())
		p, err := at.WithDefaults().Problem()
		if err != nil {
			t.Fatal(err)
		}
		state := j.Updates()
		if len(state) != p.StateLen() || !slices.ContainsFunc(state, func(x float32) bool { return x != 0 }) {
			t.Errorf("%s: got a state of %d numbers, %v, want %d that are not all 0", rule, len(state), state, p.StateLen())
		}
		bare := p.Count(cases.Outline(p)).Bytes
		if n, err := w.Count(); err != nil || n.Bytes != bare+8*int64(len(state)) {
			t.Errorf("%s: got %d bytes, %v, want the operands' %d and those of the state twice", rule, n.Bytes, err, bare)
		}
		at.Features = "ragged-alone"
		if _, err := harness.Attention(kernel, at.WithDefaults()); err == nil || !strings.Contains(err.Error(), "leave ragged-alone out") {
			t.Errorf("%s: sequences of one token one by one: got %v", rule, err)
		}
	}
}
