package run

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"attnlab/attn"
)

// Arrange fills in the masks and lengths that the features of the point demand, into operands as
// cases.NewArgs lays them out. The result depends on the point alone.
//
//	bool, packed      A random SHARE of all pairs is visible, the same pairs in both forms. Without
//	                  a share it is 63 in 64: nearly every pair counts, and hardly any block of keys
//	                  is wholly visible or wholly hidden.
//	block             Each block of queries sees a random SHARE of the blocks of keys: at least one,
//	                  and always its own.
//	relative-clipped  The table of relative positions ends at distance N.
//	ragged            Sequences have from LEAST (1) to all of the keys, evenly spaced, in random
//	                  order. They have queries in proportion.
//	lengths           Batch entries use from half to all of their keys, evenly spaced; a single one
//	                  uses three quarters. The last query is at the last of these keys. If there are
//	                  more queries than keys, the first query is at the first key.
func (p Point) Arrange(q *attn.Problem, a *attn.Args) error {
	_, arrange, err := p.problem()
	if err != nil {
		return err
	}
	for _, do := range arrange {
		do(q, a)
	}
	return nil
}

// defaultShare is the share of pairs that a bitmap without SHARE shows.
const defaultShare = 63.0 / 64

func share(arg string) (float64, error) {
	x, err := strconv.ParseFloat(arg, 64)
	if err != nil || !(x > 0 && x <= 1) {
		return 0, fmt.Errorf("%q is not a share, more than 0 and up to 1", arg)
	}
	return x, nil
}

// scattered returns the apply of a bitmap that shows random pairs.
func scattered(form attn.Bitmap) func(*attn.Problem, string) (arrangement, error) {
	return func(q *attn.Problem, arg string) (arrangement, error) {
		shown := defaultShare
		if arg != "" {
			var err error
			if shown, err = share(arg); err != nil {
				return nil, err
			}
		}
		q.Mask = q.Mask.With(form)
		return func(q *attn.Problem, a *attn.Args) {
			r := pointRand(q)
			if form == attn.BoolBitmap {
				for i := range a.Allowed.Bool {
					a.Allowed.Bool[i] = r.Float64() < shown
				}
				return
			}
			a.Allowed = attn.Pack(q.SeqQ, q.SeqKV, func(_, _ int) bool { return r.Float64() < shown })
		}, nil
	}
}

// pointRand returns the source of random masks and orders. It depends on the lengths alone, so all
// points of one size have the same masks.
func pointRand(q *attn.Problem) *rand.Rand {
	return rand.New(rand.NewPCG(uint64(q.SeqQ), uint64(q.SeqKV)))
}

func blocks(q *attn.Problem, arg string) (arrangement, error) {
	first, rest, _ := strings.Cut(arg, ":")
	side, err := strconv.Atoi(first)
	if err != nil || side < 1 {
		return nil, fmt.Errorf("%q is not SIDE:SHARE, such as 128:0.25", arg)
	}
	shown, err := share(rest)
	if err != nil {
		return nil, err
	}
	q.Mask = q.Mask.WithBlocks(side)
	return func(q *attn.Problem, a *attn.Args) {
		r := pointRand(q)
		rows, columns := (q.SeqQ+side-1)/side, (q.SeqKV+side-1)/side
		some := max(1, int(math.Round(shown*float64(columns))))
		sees := make([][]bool, rows)
		for i := range sees {
			own := max(0, i+columns-rows)
			others := slices.DeleteFunc(r.Perm(columns), func(j int) bool { return j == own })
			sees[i] = make([]bool, columns)
			for _, j := range append(others[:some-1], own) {
				sees[i][j] = true
			}
		}
		a.Allowed = attn.BlockSparse(q.SeqQ, q.SeqKV, side, func(i, j int) bool { return sees[i][j] })
	}, nil
}

func clipped(q *attn.Problem, arg string) (arrangement, error) {
	n, err := strconv.Atoi(arg)
	if most := (q.SeqQ+q.SeqKV)/2 - 1; err != nil || n < 1 || n > most {
		return nil, fmt.Errorf("%q is not a distance from 1 to %d", arg, most)
	}
	q.Score.Terms |= attn.TermRelative
	return func(_ *attn.Problem, a *attn.Args) {
		a.Terms.RelativeClip, a.Terms.Relative.S = n, 2*n+1
	}, nil
}

func rectangular(q *attn.Problem, arg string) (arrangement, error) {
	d, err := strconv.Atoi(arg)
	if err != nil || d < 1 {
		return nil, fmt.Errorf("%q is not a number of columns", arg)
	}
	q.Score.Terms |= attn.TermMetric
	q.DimQ = d
	return nil, nil
}

// alone names the feature that runs the sequences of a ragged batch one by one.
const alone = "ragged-alone"

func ragged(q *attn.Problem, arg string) (arrangement, error) {
	least, err := leastLength(q, arg)
	if err != nil {
		return nil, err
	}
	q.Ragged = true
	q.Lengths = q.Page != 0 // only lengths tell how many keys are in pages
	return func(q *attn.Problem, a *attn.Args) {
		for b, n := range sequences(q, least) {
			a.QStart[b+1] = a.QStart[b] + int32(n.Q)
			if a.KStart != nil {
				a.KStart[b+1] = a.KStart[b] + int32(n.KV)
			}
			if a.KLen != nil {
				a.KLen[b] = int32(n.KV)
			}
		}
	}, nil
}

func leastLength(q *attn.Problem, arg string) (int, error) {
	if arg == "" {
		return 1, nil
	}
	n, err := strconv.Atoi(arg)
	if err != nil || n < 1 || n > q.SeqKV {
		return 0, fmt.Errorf("%q is not a length from 1 to %d", arg, q.SeqKV)
	}
	return n, nil
}

// A Sequence is the length of one sequence of a ragged batch, in queries and in keys.
type Sequence struct{ Q, KV int }

// Alone returns the sequences of a point that runs a ragged batch one by one, each through a plan
// of its own length. It returns nil for any other point.
func (p Point) Alone() []Sequence {
	list, err := splitFeatures(p.Op, p.Features)
	if err != nil {
		return nil
	}
	for _, f := range list {
		if strings.TrimSuffix(f.name, ":") == alone {
			q := attn.Problem{Batch: p.Batch, SeqQ: p.SeqQ, SeqKV: p.SeqKV}
			least, err := leastLength(&q, f.arg)
			if err != nil {
				return nil
			}
			return sequences(&q, least)
		}
	}
	return nil
}

func sequences(q *attn.Problem, least int) []Sequence {
	all := make([]Sequence, q.Batch)
	for i, at := range pointRand(q).Perm(q.Batch) {
		keys := q.SeqKV
		if q.Batch > 1 {
			keys = least + i*(q.SeqKV-least)/(q.Batch-1)
		}
		all[at] = Sequence{Q: max(1, keys*q.SeqQ/q.SeqKV), KV: keys}
	}
	return all
}

func lengths(q *attn.Problem, _ string) (arrangement, error) {
	q.Lengths = true
	return func(q *attn.Problem, a *attn.Args) {
		a.QPos = make([]int32, q.Batch)
		for b := range a.KLen {
			part, all := 2*(q.Batch+b)+1, 4*q.Batch
			a.KLen[b] = int32((a.Keys(q, b)*part + all - 1) / all)
			a.QPos[b] = max(0, a.KLen[b]-int32(a.Queries(q, b)))
		}
	}, nil
}
