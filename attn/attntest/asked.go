package attntest

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"slices"
	"sync"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/attn/oracle"
)

// What the oracle says of a call follows from its problem and its inputs. The kernels of a package
// are asked the same calls, and so are mutants: the oracle answers once.

// A question is a call as the oracle reads it, and which of its rows are asked for.
type question struct {
	problem attn.Problem
	inputs  uint64
	rows    int // sampled, 0 for the margins of all of them
	seed    uint64
}

var asked = struct {
	sync.Mutex
	answers map[question]*oracle.Answers
	margins map[question][]margin
	kept    int // numbers in both
}{answers: map[question]*oracle.Answers{}, margins: map[question][]margin{}}

// keepNumbers bounds what is kept, to 128 MiB. What comes later is asked again.
const keepNumbers = 1 << 24

// compared holds the outputs of a call against what the oracle says of so many rows of it.
func compared(p attn.Problem, a *attn.Args, rows int, seed uint64) (oracle.Verdict, error) {
	q := question{p, fingerprint(a), rows, seed}
	asked.Lock()
	said := asked.answers[q]
	asked.Unlock()
	if said != nil {
		return said.Judge(a), nil
	}
	o, err := oracle.New(p, a)
	if err != nil {
		return oracle.Verdict{}, err
	}
	said = o.Answers(oracle.Sample(&p, a, rows, seed))
	asked.Lock()
	if n := said.Len(); asked.kept+n <= keepNumbers {
		asked.kept += n
		asked.answers[q] = said
	}
	asked.Unlock()
	return said.Judge(a), nil
}

// margins has one entry a row, in the order of cases.Rows. It is the caller's.
func margins(p attn.Problem, a *attn.Args) ([]margin, error) {
	q := question{problem: p, inputs: fingerprint(a)}
	asked.Lock()
	said := asked.margins[q]
	asked.Unlock()
	if said == nil {
		var err error
		if said, err = tolerances(p, a); err != nil {
			return nil, err
		}
		asked.Lock()
		if n := len(said) * (p.DimV + 5); asked.kept+n <= keepNumbers {
			asked.kept += n
			asked.margins[q] = said
		}
		asked.Unlock()
	}
	mine := slices.Clone(said)
	for i := range mine {
		mine[i].out = slices.Clone(mine[i].out)
	}
	return mine, nil
}

var seed = maphash.MakeSeed()

// fingerprint is a hash of all that a call holds before it is answered: numbers, shapes, masks,
// places, and which outputs there are.
func fingerprint(a *attn.Args) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	var buf []byte
	whole := func(numbers ...int) {
		buf = buf[:0]
		for _, x := range numbers {
			buf = binary.LittleEndian.AppendUint64(buf, uint64(x))
		}
		h.Write(buf)
	}
	floats := func(row []float32) {
		buf = buf[:0]
		for _, x := range row {
			buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(x))
		}
		h.Write(buf)
	}
	shape := func(name string, t *attn.Tensor) {
		h.WriteString(name)
		whole(int(t.Type), t.B, t.S, t.H, t.D)
	}
	cases.Inputs(a, func(name string, t *attn.Tensor) {
		shape(name, t)
		cases.Rows(t, func(_, _, _ int, row []float32) { floats(row) })
	})
	cases.Outputs(a, shape)
	t := &a.Terms
	for _, x := range [][]float32{t.Slopes, t.Sinks} {
		whole(len(x))
		floats(x)
	}
	for _, x := range [][]int32{a.KLen, a.QPos, a.QStart, a.KStart, a.Pages} {
		whole(len(x))
		for _, n := range x {
			whole(int(n))
		}
	}
	m := &a.Allowed
	whole(t.RelativeClip, len(a.Stats.ArgMax), m.B, m.S, m.H, m.D, m.SB, m.SS, m.SH, len(m.Bool), len(m.Words))
	for _, w := range m.Words {
		whole(int(w))
	}
	for _, shown := range m.Bool {
		if shown {
			h.WriteByte(1)
		} else {
			h.WriteByte(0)
		}
	}
	return h.Sum64()
}
