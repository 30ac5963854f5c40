package kernels_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/attn/oracle"
	"attnlab/internal/processtest"
	"attnlab/kernels"
)

// cuts are the bounds of the parts of 41 keys: one part has a single key, one has none.
var cuts = []int{0, 9, 10, 10, 33, 41}

const (
	partOf = "ATTNLAB_PART"   // index of the part that a process computes
	partTo = "ATTNLAB_FOLDER" // folder for its partial results
)

// splits returns problems whose keys are divided among processes.
func splits(t *testing.T) map[string]attn.Problem {
	plain := attn.Problem{
		Batch: 2, SeqQ: 5, SeqKV: 41, HeadsQ: 4, HeadsKV: 2, Dim: 16, DimV: 7, Mask: attn.Causal(), Lengths: true, Want: attn.WantLSE,
		Score: attn.Score{Terms: attn.TermBias},
	}
	terms := plain
	terms.Mask = attn.Window(20, 0)
	terms.Score = attn.Score{Softcap: 3, Temp: .5, Terms: attn.TermBias | attn.TermALiBi | attn.TermSinks}
	all := map[string]attn.Problem{"plain": plain, "terms": terms}
	for name, p := range all {
		if err := p.Validate(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return all
}

// whole returns the call over all keys. Its first batch entry has fewer keys than the capacity.
func whole(t *testing.T, p attn.Problem) *attn.Args {
	a, err := cases.NewArgs(p, "bshd", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := cases.Fill("normal", p, a, 7); err != nil {
		t.Fatal(err)
	}
	a.KLen = []int32{30, 41}
	a.QPos = []int32{25, 36}
	return a
}

// part returns the call over the keys from lo to hi. Its operands are views of the whole call's,
// and positions and lengths count from lo.
func part(p attn.Problem, a *attn.Args, lo, hi int) *attn.Args {
	to := *a
	for _, t := range []*attn.Tensor{&to.K, &to.V} {
		t.Data, t.S = t.Data[lo*t.SS:], hi-lo
	}
	bias := &to.Terms.Bias
	bias.Data, bias.D = bias.Data[lo:], hi-lo
	to.KLen, to.QPos = slices.Clone(a.KLen), slices.Clone(a.QPos)
	for b := range to.KLen {
		to.KLen[b] = int32(max(0, min(int(to.KLen[b]), hi)-lo))
		to.QPos[b] -= int32(lo)
	}
	if p.Score.Terms&attn.TermSinks != 0 && lo > 0 { // the sink belongs to the first part
		to.Terms.Sinks = slices.Repeat([]float32{float32(math.Inf(-1))}, p.HeadsQ)
	}
	return &to
}

// answer returns the partial result of a kernel for a call.
func answer(t *testing.T, k attn.Kernel, p attn.Problem, a *attn.Args) attn.Partial {
	plan, err := k.Plan(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := attn.NewPartial(p.Batch, p.SeqQ, p.HeadsQ, p.DimV)
	to := *a
	to.Out, to.Stats.LSE = s.Out, s.LSE
	plan.Forward(&to)
	return s
}

// able returns the kernels that support a problem.
func able(p attn.Problem) map[string]attn.Kernel {
	all := map[string]attn.Kernel{}
	for _, k := range kernels.All() {
		if _, err := k.Check(p, 1); err == nil {
			algo, isa := k.Name()
			all[algo+"-"+isa] = k
		}
	}
	return all
}

// TestPart is one process of TestPartialsOfProcesses: it attends over its part of the keys, and
// writes a file for each problem and kernel.
func TestPart(t *testing.T) {
	i, err := strconv.Atoi(os.Getenv(partOf))
	if err != nil {
		t.Skip("a process of TestPartialsOfProcesses")
	}
	for name, p := range splits(t) {
		for kernel, k := range able(p) {
			s := answer(t, k, p, part(p, whole(t, p), cuts[i], cuts[i+1]))
			var text bytes.Buffer
			if _, err := s.WriteTo(&text); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(partialFile(os.Getenv(partTo), name, kernel, i), text.Bytes(), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func partialFile(dir, problem, kernel string, part int) string {
	return filepath.Join(dir, fmt.Sprintf("%s-%s-%d", problem, kernel, part))
}

// TestPartialsOfProcesses checks that processes that each see a part of the keys agree, through
// files, with the definition over all keys. Their partial results are merged in any order, and each
// kernel rounds in its own way. Attention over a sequence that no single machine holds depends on
// it.
func TestPartialsOfProcesses(t *testing.T) {
	self := processtest.Self(t)
	dir, parts := t.TempDir(), len(cuts)-1
	for i := range parts {
		c := exec.Command(self, "-test.run=^TestPart$")
		c.Env = append(os.Environ(), fmt.Sprintf("%s=%d", partOf, i), partTo+"="+dir)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for name, p := range splits(t) {
		for kernel := range able(p) {
			t.Run(name+"/"+kernel, func(t *testing.T) {
				read := func(i int) attn.Partial { // reads again, as Merge changes its receiver
					text, err := os.ReadFile(partialFile(dir, name, kernel, i))
					if err != nil {
						t.Fatal(err)
					}
					var s attn.Partial
					if _, err := s.ReadFrom(bytes.NewReader(text)); err != nil {
						t.Fatal(err)
					}
					return s
				}
				for _, order := range [][]int{{0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {2, 0, 4, 1, 3}} {
					s := attn.NewPartial(p.Batch, p.SeqQ, p.HeadsQ, p.DimV)
					for _, i := range order {
						s.Merge(read(i))
					}
					judgePartial(t, p, s, fmt.Sprint(order))
				}
				left, right := read(1), read(4)
				left.Merge(read(0))
				right.Merge(read(3))
				right.Merge(read(2))
				right.Merge(left)
				judgePartial(t, p, right, "(4 3 2) (1 0)")
				for i := range parts { // merging from either side gives the same bits
					for j := range i {
						x, y := read(i), read(j)
						x.Merge(read(j))
						y.Merge(read(i))
						if !slices.Equal(x.Out.Data, y.Out.Data) || !slices.Equal(x.LSE.Data, y.LSE.Data) {
							t.Errorf("%d with %d is not %d with %d", i, j, j, i)
						}
					}
				}
			})
		}
	}
}

// judgePartial compares a partial result over all keys with the definition.
func judgePartial(t *testing.T, p attn.Problem, s attn.Partial, order string) {
	t.Helper()
	a := whole(t, p)
	a.Out, a.Stats.LSE = s.Out, s.LSE
	o, err := oracle.New(p, a)
	if err != nil {
		t.Fatal(err)
	}
	if v := o.Judge(oracle.All(&p, a)); !(v.Worst <= 1) {
		t.Errorf("%s: %.3g times the tolerance: %s", order, v.Worst, v.Where)
	} else {
		t.Logf("%s: %.3f of the tolerance", order, v.Worst)
	}
}
