package run

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"attnlab/attn"
)

// WithDefaults fills the axes that are empty or zero with the plain case: one batch entry, one
// head, one thread, softmax, forward, unmasked, float32 rows in layout bhsd, normal inputs. There
// are as many key heads as query heads and as many queries as keys, and values are as wide as keys.
// Features are put in their order. As many value heads as key heads are 0, which means just that.
func (p Point) WithDefaults() Point {
	for i := range keys {
		k := &keys[i]
		if k.Alias != "" && k.Value(p) == k.Alias {
			k.in(&p).SetZero()
		}
		plain := k.Plain(p)
		if plain == "" || !k.in(&p).IsZero() {
			continue
		}
		if err := k.Set(&p, plain); err != nil {
			panic(err) // a row of the table has a bad default
		}
	}
	if f, err := orderFeatures(p.Op, p.Rule, p.Features); err == nil {
		p.Features = f
	}
	if p.HeadsV == p.HeadsKV {
		p.HeadsV = 0
	}
	return p
}

// impliedOp returns the op that the name of a point leaves out: the one named like the kernel, else
// softmax. So kernels of different ops are lines of one table, although they answer different
// questions of the same size.
func impliedOp(kernel string) string {
	if op, err := attn.OpByName(kernel); err == nil {
		return op.String()
	}
	return attn.OpSoftmax.String()
}

// benchBase is the name of the Go benchmark that all points are sub-benchmarks of.
const benchBase = "Attention"

// Name returns the point's name in the Go benchmark format, without the word Benchmark:
//
//	Attention/kernel=flash/isa=go/pass=forward/mask=causal/heads=8/seq=2048/dim=128/threads=1
//
// These keys are always there. Each other key is there where it is not the default. Keys are in the
// order of the columns.
func (p Point) Name() string { return p.name(true) }

// Contender returns the kernel and its instruction set, such as flash/avx512.
func (p Point) Contender() string { return p.Kernel + "/" + p.ISA }

// Group returns the name without kernel and ISA. Points of one group answer the same question, so
// they are worth comparing.
func (p Point) Group() string { return p.name(false) }

func (p Point) name(contender bool) string {
	plain := p
	for i := range keys {
		if !keys[i].Always {
			keys[i].in(&plain).SetZero()
		}
	}
	plain.Op, plain.Rule = p.Op, p.Rule // the default features depend on them
	plain = plain.WithDefaults()
	plain.Op, plain.Rule = impliedOp(p.Kernel), ""
	var b strings.Builder
	b.WriteString(benchBase)
	for i := range keys {
		k := &keys[i]
		v := k.Value(p)
		if k.Contender && !contender || !k.Always && v == k.Value(plain) {
			continue
		}
		b.WriteString("/" + k.Key + "=" + v)
	}
	return b.String()
}

var procs = regexp.MustCompile(`-[0-9]+$`)

// ParseName reads a point from its name. The word Benchmark in front, and the GOMAXPROCS that go
// test appends, may be there or not.
func ParseName(name string) (Point, error) {
	var p Point
	bare := procs.ReplaceAllString(strings.TrimPrefix(name, "Benchmark"), "")
	parts := strings.Split(bare, "/")
	if parts[0] != benchBase {
		return p, fmt.Errorf("benchmark %q: not one of Benchmark%s", name, benchBase)
	}
	next := 0
	for _, part := range parts[1:] {
		key, v, ok := strings.Cut(part, "=")
		if !ok {
			return p, fmt.Errorf("benchmark %q: %q is not key=value", name, part)
		}
		for next < len(keys) && keys[next].Key != key {
			if keys[next].Always {
				return p, fmt.Errorf("benchmark %q: %q where %s= is due", name, part, keys[next].Key)
			}
			next++
		}
		if next == len(keys) {
			return p, fmt.Errorf("benchmark %q: key %q is unknown, doubled or out of order", name, key)
		}
		if err := keys[next].Set(&p, v); err != nil {
			return p, fmt.Errorf("benchmark %q: %w", name, err)
		}
		next++
	}
	for ; next < len(keys); next++ {
		if keys[next].Always {
			return p, fmt.Errorf("benchmark %q: %s= is missing", name, keys[next].Key)
		}
	}
	if p.Op == "" {
		p.Op = impliedOp(p.Kernel)
	}
	p = p.WithDefaults()
	if err := p.Validate(); err != nil {
		return p, fmt.Errorf("benchmark %q: %w", name, err)
	}
	if p.Name() != bare {
		return p, fmt.Errorf("benchmark %q: that point is spelled %q", name, p.Name())
	}
	return p, nil
}

// Edited returns the point with some keys changed, as in kernel=tiled,isa=go. Keys are those of
// names.
func (p Point) Edited(edits string) (Point, error) {
	for edit := range strings.SplitSeq(edits, ",") {
		key, v, ok := strings.Cut(edit, "=")
		at := slices.IndexFunc(keys, func(a Axis) bool { return a.Key == key })
		if !ok || at < 0 {
			return p, fmt.Errorf("%q: want key=value, the key as in the names of points: kernel, isa, threads", edit)
		}
		if err := keys[at].Set(&p, v); err != nil {
			return p, err
		}
	}
	return p, p.Validate()
}

// Validate reports what is wrong with a point.
func (p Point) Validate() error {
	if p != p.WithDefaults() {
		return fmt.Errorf("point: fields are unset or features out of order; %q is the full spelling", p.WithDefaults().Name())
	}
	for i := range keys {
		k := &keys[i]
		v := k.Value(p)
		if err := k.Check(v); err != nil {
			return fmt.Errorf("%s %q: %w", k.Column, v, err)
		}
	}
	if p.Layout == "packed" && p.SeqQ != p.SeqKV {
		return fmt.Errorf("layout packed holds queries and keys in the same rows: seq_q is %d, seq_kv %d", p.SeqQ, p.SeqKV)
	}
	q, _, err := p.problem()
	if err != nil {
		return err
	}
	return q.Validate()
}

// Problem returns the attention problem of a point. That of a layer is the problem of the attention
// in it. Features are a list, joined by +, in this order:
//
//	softmax  temp:T softcap:X bias alibi sinks relative relative-clipped:N
//	         metric metric-rect:D rope rope-halves
//	linear   elu+1 relu+1 identity unnormalised eps:X
//	both     bool bool:SHARE packed packed:SHARE block:SIDE:SHARE
//	         ragged ragged:LEAST ragged-alone ragged-alone:LEAST lengths
//	softmax  lse mean entropy max argmax weights scores
//
// T is a number, inf or frozen. A linear point that names no feature map has elu+1, and with most
// rules identity+unnormalised. Arrange fills in masks and lengths. SetGates sets the gates of a
// rule.
func (p Point) Problem() (attn.Problem, error) {
	if err := p.Validate(); err != nil {
		return attn.Problem{}, err
	}
	q, _, err := p.problem()
	return q, err
}

// problem returns the problem of a point, and what its features do to the operands.
func (p Point) problem() (attn.Problem, []arrangement, error) {
	q := attn.Problem{
		Batch: p.Batch, SeqQ: p.SeqQ, SeqKV: p.SeqKV, HeadsQ: p.HeadsQ, HeadsKV: p.HeadsKV, Dim: p.Dim, DimV: p.DimV, Page: p.Page,
	}
	var err error
	if q.Op, err = attn.OpByName(p.Op); err != nil {
		return q, nil, err
	}
	if err := p.checkLayer(); err != nil {
		return q, nil, err
	}
	if q.Mask, err = ParseMask(p.Mask); err != nil {
		return q, nil, err
	}
	if q.KV, err = parseStore(p.Store); err != nil {
		return q, nil, fmt.Errorf("store %q: %w", p.Store, err)
	}
	if p.Pass != "forward" {
		q.Want |= attn.WantGrad
	}
	if err := p.setRule(&q); err != nil {
		return q, nil, err
	}
	list, err := splitFeatures(p.Op, p.Features)
	if err != nil {
		return q, nil, err
	}
	var arrange []arrangement
	for _, f := range list {
		do, err := f.apply(&q, f.arg)
		if err != nil {
			return q, nil, fmt.Errorf("feature %q: %w", f.String(), err)
		}
		if do != nil {
			arrange = append(arrange, do)
		}
	}
	return q, arrange, nil
}

// ParseMask reads the name of a mask:
//
//	full            every query sees every key
//	causal          no key after a query's position; the last query is at the last key
//	causal-topleft  the same, but the first query is at the first key
//	window:L:R      L keys before a query's position and R after it, inf for no limit; the last
//	                query is at the last key, or with :topleft appended the first at the first
func ParseMask(s string) (attn.Mask, error) {
	m, err := parseMask(s)
	if err != nil {
		err = fmt.Errorf("mask %q: %w", s, err)
	}
	return m, err
}

// parseMask is ParseMask, with errors that do not name the mask.
func parseMask(s string) (attn.Mask, error) {
	switch s {
	case "full":
		return attn.Full(), nil
	case "causal":
		return attn.Causal(), nil
	case "causal-topleft":
		return attn.CausalTopLeft(), nil
	}
	bad := errors.New("one of full, causal, causal-topleft, window:L:R (L and R are counts of keys, or inf)")
	rest, ok := strings.CutPrefix(s, "window:")
	if !ok {
		return attn.Mask{}, bad
	}
	rest, topLeft := strings.CutSuffix(rest, ":topleft")
	l, r, ok := strings.Cut(rest, ":")
	if !ok {
		return attn.Mask{}, bad
	}
	side := func(s string) (int, bool) {
		if s == "inf" {
			return attn.Unbounded, true
		}
		n, err := strconv.Atoi(s)
		return n, err == nil && n >= 0 && strconv.Itoa(n) == s
	}
	left, okL := side(l)
	right, okR := side(r)
	if !okL || !okR {
		return attn.Mask{}, bad
	}
	m := attn.Window(left, right)
	if topLeft {
		m.Align = attn.TopLeft
	}
	if m.String() != s {
		return attn.Mask{}, fmt.Errorf("its name is %q", m)
	}
	return m, nil
}

// parseStore reads the name of an element type. Errors do not name it.
func parseStore(s string) (attn.DType, error) {
	for t := attn.F32; t <= attn.I8; t++ {
		if t.String() == s {
			return t, nil
		}
	}
	return 0, fmt.Errorf("one of %v, %v, %v, %v", attn.F32, attn.F16, attn.BF16, attn.I8)
}
