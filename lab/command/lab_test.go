package command

import (
	"testing"

	"attnlab/attn"
	"attnlab/harness"
	"attnlab/harness/run"
	"attnlab/kernels"
)

// A counter counts the workloads of layers that it is asked for.
type counter struct {
	Layers
	made map[run.Point]int
}

func (c counter) Workload(k attn.Kernel, at run.Point) (*harness.Workload, error) {
	c.made[at]++
	return c.Layers.Workload(k, at)
}

// TestWorkloadIsMadeOnce checks that a point has one workload, however often and by whatever part
// of the harness it is asked for, and that one that cannot be made is not tried again.
func TestWorkloadIsMadeOnce(t *testing.T) {
	lab := labOf(kernels.All())
	c := counter{lab.Layers, map[run.Point]int{}}
	lab.Layers = c
	right := run.Point{Kernel: "naive", ISA: "go", Layer: run.LayerMHA, SeqKV: 8, Dim: 8}.WithDefaults()
	wrong := right
	wrong.Store = "f16" // which a layer without a cache does not do
	h := lab.server()
	for _, at := range []run.Point{right, wrong} {
		first, err := h.Workload(at)
		again, second := h.Workload(at)
		if first != again || err != second || (err == nil) != (at == right) {
			t.Errorf("%s: %p and %p, %v and %v", at.Name(), first, again, err, second)
		}
		if c.made[at] != 1 {
			t.Errorf("%s: the workload was made %d times", at.Name(), c.made[at])
		}
	}
}
