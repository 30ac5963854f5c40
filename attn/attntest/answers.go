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

// The oracle's answer depends only on a call's problem and inputs. The kernels of a package, and
// all mutants, run the same calls, so the oracle's answers are kept and used again.

// A question is a call as the oracle reads it, with a choice of its rows.
type question struct {
	problem attn.Problem
	inputs  uint64 // fingerprint of the call
	rows    int    // number of sampled rows; 0 for the margins of all rows
	seed    uint64 // of the sample
}

var cache = struct {
	sync.Mutex
	answers map[question]*oracle.Answers
	margins map[question][]margin
	kept    int // numbers in both
}{answers: map[question]*oracle.Answers{}, margins: map[question][]margin{}}

// mostKept limits the numbers in the cache, to 128 MiB. Later answers are not kept.
const mostKept = 1 << 24

// compared compares the outputs of a call with the oracle's answers for a sample of its rows.
func compared(p attn.Problem, a *attn.Args, rows int, seed uint64) (oracle.Verdict, error) {
	q := question{p, fingerprint(a), rows, seed}
	cache.Lock()
	right := cache.answers[q]
	cache.Unlock()
	if right != nil {
		return right.Judge(a), nil
	}
	o, err := oracle.New(p, a)
	if err != nil {
		return oracle.Verdict{}, err
	}
	right = o.Answers(oracle.Sample(&p, a, rows, seed))
	cache.Lock()
	if n := right.Len(); cache.kept+n <= mostKept {
		cache.kept += n
		cache.answers[q] = right
	}
	cache.Unlock()
	return right.Judge(a), nil
}

// margins returns the margin of each row of a call, in the order of cases.Rows. The caller may
// change them.
func margins(p attn.Problem, a *attn.Args) ([]margin, error) {
	q := question{problem: p, inputs: fingerprint(a)}
	cache.Lock()
	kept := cache.margins[q]
	cache.Unlock()
	if kept == nil {
		var err error
		if kept, err = tolerances(p, a); err != nil {
			return nil, err
		}
		cache.Lock()
		if n := len(kept) * (p.DimV + 5); cache.kept+n <= mostKept {
			cache.kept += n
			cache.margins[q] = kept
		}
		cache.Unlock()
	}
	mine := slices.Clone(kept)
	for i := range mine {
		mine[i].out = slices.Clone(mine[i].out)
	}
	return mine, nil
}

var seed = maphash.MakeSeed()

// fingerprint returns a hash of everything that determines a call's answer: numbers, shapes, masks,
// offsets, and which outputs it has.
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
	for _, x := range [][]float32{t.Slopes, t.Sinks, a.StateIn} {
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
	whole(len(a.StateOut), t.RelativeClip, len(a.Stats.ArgMax), m.B, m.S, m.H, m.D, m.SB, m.SS, m.SH, len(m.Bool), len(m.Words))
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
