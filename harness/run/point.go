package run

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"attnlab/attn"
)

// A Point is the identity of one cell of a sweep: one kernel on one problem in one setting, alone
// or in a layer. Its fields are the key columns of sweep.csv. It is comparable. The same cell has
// one spelling only: the one that WithDefaults gives.
type Point struct {
	Kernel   string `json:"kernel"`
	ISA      string `json:"isa"`
	Op       string `json:"op"`
	Pass     string `json:"pass"` // forward, backward or both
	Mask     string `json:"mask"` // full, causal, causal-topleft, window:L:R with inf for an open side
	Batch    int    `json:"batch"`
	HeadsQ   int    `json:"heads_q"`
	HeadsKV  int    `json:"heads_kv"`
	SeqQ     int    `json:"seq_q"`
	SeqKV    int    `json:"seq_kv"`
	Dim      int    `json:"dim"`
	DimV     int    `json:"dim_v"`
	Layout   string `json:"layout"`   // bhsd, bshd or packed
	Data     string `json:"data"`     // the distribution of the inputs
	Features string `json:"features"` // joined by +; see Problem
	Store    string `json:"store"`    // element type of keys and values
	Page     int    `json:"page"`
	Threads  int    `json:"threads"`

	Layer string `json:"layer,omitempty"` // what is timed around the kernel, one of Layers, or empty: the kernel alone
}

// A key is one key column: its name in sweep.csv, its name in a benchmark name, whether the
// benchmark name always shows it, and where a Point holds it.
type key struct {
	column, bench string
	always        bool
	text          func(*Point) *string
	number        func(*Point) *int
}

// keys holds the key columns in their order, for names, for CSV and for messages.
var keys = [...]key{
	{column: "kernel", bench: "kernel", always: true, text: func(p *Point) *string { return &p.Kernel }},
	{column: "isa", bench: "isa", always: true, text: func(p *Point) *string { return &p.ISA }},
	{column: "op", bench: "op", text: func(p *Point) *string { return &p.Op }},
	{column: "pass", bench: "pass", always: true, text: func(p *Point) *string { return &p.Pass }},
	{column: "mask", bench: "mask", always: true, text: func(p *Point) *string { return &p.Mask }},
	{column: "batch", bench: "batch", number: func(p *Point) *int { return &p.Batch }},
	{column: "heads_q", bench: "heads", always: true, number: func(p *Point) *int { return &p.HeadsQ }},
	{column: "heads_kv", bench: "kvheads", number: func(p *Point) *int { return &p.HeadsKV }},
	{column: "seq_q", bench: "seqq", number: func(p *Point) *int { return &p.SeqQ }},
	{column: "seq_kv", bench: "seq", always: true, number: func(p *Point) *int { return &p.SeqKV }},
	{column: "dim", bench: "dim", always: true, number: func(p *Point) *int { return &p.Dim }},
	{column: "dim_v", bench: "dimv", number: func(p *Point) *int { return &p.DimV }},
	{column: "layout", bench: "layout", text: func(p *Point) *string { return &p.Layout }},
	{column: "data", bench: "data", text: func(p *Point) *string { return &p.Data }},
	{column: "features", bench: "features", text: func(p *Point) *string { return &p.Features }},
	{column: "store", bench: "store", text: func(p *Point) *string { return &p.Store }},
	{column: "page", bench: "page", number: func(p *Point) *int { return &p.Page }},
	{column: "threads", bench: "threads", always: true, number: func(p *Point) *int { return &p.Threads }},
	{column: "layer", bench: "layer", text: func(p *Point) *string { return &p.Layer }},
}

// keyColumns are the keys that stand in front in sweep.csv. The layer stands among the measures,
// before its own.
var keyColumns = keys[:len(keys)-1]

func (k *key) get(p *Point) string {
	if k.text != nil {
		return *k.text(p)
	}
	return strconv.Itoa(*k.number(p))
}

func (k *key) set(p *Point, s string) error {
	if k.text != nil {
		*k.text(p) = s
		return nil
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return fmt.Errorf("%s: %q is not a whole number", k.column, s)
	}
	*k.number(p) = n
	return nil
}

func (k *key) clear(p *Point) {
	if k.text != nil {
		*k.text(p) = ""
	} else {
		*k.number(p) = 0
	}
}

// WithDefaults fills the fields that are empty or zero with the plain case: one batch, one head, as
// many key heads as query heads, as many queries as keys, d_v = d, softmax, forward, unmasked,
// float32 in layout bhsd from normal inputs, one thread. Features are put in their order.
func (p Point) WithDefaults() Point {
	text := func(s *string, def string) {
		if *s == "" {
			*s = def
		}
	}
	number := func(n *int, def int) {
		if *n == 0 {
			*n = def
		}
	}
	text(&p.Op, attn.OpSoftmax.String())
	text(&p.Pass, "forward")
	text(&p.Mask, "full")
	number(&p.Batch, 1)
	number(&p.HeadsQ, 1)
	number(&p.HeadsKV, p.HeadsQ)
	number(&p.SeqQ, p.SeqKV)
	number(&p.DimV, p.Dim)
	text(&p.Layout, "bhsd")
	text(&p.Data, "normal")
	text(&p.Store, attn.F32.String())
	number(&p.Threads, 1)
	if f, err := orderFeatures(p.Op, p.Features); err == nil {
		p.Features = f
	}
	return p
}

// unsaidOp returns the op that the name of a point leaves out: the one named like the kernel, or
// softmax. Kernels of different ops, which answer different questions of the same size, are then
// lines of one table.
func unsaidOp(kernel string) string {
	if op, err := attn.OpByName(kernel); err == nil {
		return op.String()
	}
	return attn.OpSoftmax.String()
}

// benchBase is the name of the Go benchmark that all points are sub-benchmarks of.
const benchBase = "Attention"

// Name is the point's name in the Go benchmark format, without the word Benchmark:
//
//	Attention/kernel=flash/isa=go/pass=forward/mask=causal/heads=8/seq=2048/dim=128/threads=1
//
// These keys always; each other key, in the order of the columns, only where it is not the default.
func (p Point) Name() string { return p.name(true) }

// Contender returns the kernel and its instruction set, such as flash/avx512.
func (p Point) Contender() string { return p.Kernel + "/" + p.ISA }

// Group is the name without kernel and ISA: points of one group answer the same question and are
// worth comparing.
func (p Point) Group() string { return p.name(false) }

func (p Point) name(contender bool) string {
	plain := p
	for i := range keys {
		if !keys[i].always {
			keys[i].clear(&plain)
		}
	}
	plain.Op = p.Op // which the default features depend on
	plain = plain.WithDefaults()
	plain.Op = unsaidOp(p.Kernel)
	var b strings.Builder
	b.WriteString(benchBase)
	for i := range keys {
		k := &keys[i]
		v := k.get(&p)
		if !contender && (k.column == "kernel" || k.column == "isa") || !k.always && v == k.get(&plain) {
			continue
		}
		b.WriteString("/" + k.bench + "=" + v)
	}
	return b.String()
}

var procs = regexp.MustCompile(`-[0-9]+$`)

// ParseName reads a point back from its name, with or without the word Benchmark in front and the
// GOMAXPROCS that go test puts behind.
func ParseName(name string) (Point, error) {
	var p Point
	bare := procs.ReplaceAllString(strings.TrimPrefix(name, "Benchmark"), "")
	parts := strings.Split(bare, "/")
	if parts[0] != benchBase {
		return p, fmt.Errorf("benchmark %q: not one of Benchmark%s", name, benchBase)
	}
	next := 0
	for _, part := range parts[1:] {
		bench, v, ok := strings.Cut(part, "=")
		if !ok {
			return p, fmt.Errorf("benchmark %q: %q is not key=value", name, part)
		}
		for next < len(keys) && keys[next].bench != bench {
			if keys[next].always {
				return p, fmt.Errorf("benchmark %q: %q where %s= is due", name, part, keys[next].bench)
			}
			next++
		}
		if next == len(keys) {
			return p, fmt.Errorf("benchmark %q: key %q is unknown, doubled or out of order", name, bench)
		}
		if err := keys[next].set(&p, v); err != nil {
			return p, fmt.Errorf("benchmark %q: %w", name, err)
		}
		next++
	}
	for ; next < len(keys); next++ {
		if keys[next].always {
			return p, fmt.Errorf("benchmark %q: %s= is missing", name, keys[next].bench)
		}
	}
	if p.Op == "" {
		p.Op = unsaidOp(p.Kernel)
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

// Edited returns the point with some keys changed, in the spelling of names: kernel=tiled,isa=go.
func (p Point) Edited(edits string) (Point, error) {
	for edit := range strings.SplitSeq(edits, ",") {
		bench, v, ok := strings.Cut(edit, "=")
		at := slices.IndexFunc(keys[:], func(k key) bool { return k.bench == bench })
		if !ok || at < 0 {
			return p, fmt.Errorf("%q: want key=value, the key as in the names of points: kernel, isa, threads", edit)
		}
		if err := keys[at].set(&p, v); err != nil {
			return p, err
		}
	}
	return p, p.Validate()
}

// word is what a key's value may be: no space, slash or equals sign, which a benchmark name could
// not carry.
var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:+-]*$`)

// Validate says what is wrong with a point.
func (p Point) Validate() error {
	if p != p.WithDefaults() {
		return fmt.Errorf("point: fields are unset or features out of order; %q is the full spelling", p.WithDefaults().Name())
	}
	for i := range keys {
		k := &keys[i]
		switch {
		case k.column == "page":
			if p.Page < 0 {
				return fmt.Errorf("page is %d, want 0 (contiguous) or more", p.Page)
			}
		case k.number != nil && *k.number(&p) < 1:
			return fmt.Errorf("%s is %d, want 1 or more", k.column, *k.number(&p))
		case k.text != nil && !word.MatchString(k.get(&p)) && (k.column != "features" && k.column != "layer" || k.get(&p) != ""):
			return fmt.Errorf("%s: %q is not a name", k.column, k.get(&p))
		}
	}
	switch {
	case p.Pass != "forward" && p.Pass != "backward" && p.Pass != "both":
		return fmt.Errorf("pass %q: one of forward, backward, both", p.Pass)
	case p.Layout != "bhsd" && p.Layout != "bshd" && p.Layout != "packed":
		return fmt.Errorf("layout %q: one of bhsd, bshd, packed", p.Layout)
	case p.Layout == "packed" && p.SeqQ != p.SeqKV:
		return fmt.Errorf("layout packed holds queries and keys in the same rows: seq_q is %d, seq_kv %d", p.SeqQ, p.SeqKV)
	}
	q, _, err := p.problem()
	if err != nil {
		return err
	}
	return q.Validate()
}

// Problem is the attention problem of a point: of a layer, that of the attention in it. Its
// features are a list, joined by +, of
//
//	softmax  temp:T softcap:X bias alibi sinks relative relative-clipped:N metric metric-rect:D rope rope-halves
//	linear   elu+1 relu+1 identity unnormalised eps:X
//	both     bool bool:SHARE packed packed:SHARE block:SIDE:SHARE ragged ragged:LEAST ragged-alone ragged-alone:LEAST lengths
//	softmax  lse mean entropy max argmax weights scores
//
// in this order; T may also be inf or frozen, and elu+1 is the feature map of a linear point that
// names none. Arrange says what becomes of masks and lengths.
func (p Point) Problem() (attn.Problem, error) {
	if err := p.Validate(); err != nil {
		return attn.Problem{}, err
	}
	q, _, err := p.problem()
	return q, err
}

// problem is the problem of a point, and what its features do to the operands.
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
		return q, nil, err
	}
	if p.Pass != "forward" {
		q.Want |= attn.WantGrad
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

// ParseMask reads the name of a mask: full, causal, causal-topleft, or window:L:R, which shows L
// keys before a query's position and R after it, inf for no limit; a window counts positions from
// the last key backwards, and from the first key forwards with :topleft behind it.
func ParseMask(s string) (attn.Mask, error) {
	switch s {
	case "full":
		return attn.Full(), nil
	case "causal":
		return attn.Causal(), nil
	case "causal-topleft":
		return attn.CausalTopLeft(), nil
	}
	bad := fmt.Errorf("mask %q: one of full, causal, causal-topleft, window:L:R (L and R are counts of keys, or inf)", s)
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
		return attn.Mask{}, fmt.Errorf("mask %q: its name is %q", s, m)
	}
	return m, nil
}

func parseStore(s string) (attn.DType, error) {
	for t := attn.F32; t <= attn.I8; t++ {
		if t.String() == s {
			return t, nil
		}
	}
	return 0, fmt.Errorf("store %q: one of %v, %v, %v, %v", s, attn.F32, attn.F16, attn.BF16, attn.I8)
}
