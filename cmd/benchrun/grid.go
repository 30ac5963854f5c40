package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"attnlab/attn"
	"attnlab/harness"
	"attnlab/harness/run"
	"attnlab/kernels/asm"
)

// A Grid is the flags that say which points there are: every combination of their values.
type Grid struct {
	Peers   `group:"grid"`
	Kernel  []string `placeholder:"NAME" help:"Kernels; default all. See benchrun list." group:"grid"`
	ISA     []string `name:"isa" placeholder:"NAME" help:"Instruction sets; default the best one and the portable one, in ab the best that a kernel has." group:"grid"`
	Mask    []string `default:"full,causal" help:"full, causal, causal-topleft, or window:L:R (L keys before a query's position, R after it, inf for no limit)." group:"grid"`
	Seq     []int    `default:"256,512,1024,2048" placeholder:"N" help:"Query rows, and key rows unless --seq-kv says otherwise (${default}; in ab 512,2048)." group:"grid"`
	SeqKV   []int    `name:"seq-kv" placeholder:"N" help:"Key rows. Decoding is --seq 1 --seq-kv N." group:"grid"`
	Dim     []int    `default:"64" placeholder:"N" help:"Size of a query and a key row (${default})." group:"grid"`
	DimV    []int    `name:"dim-v" placeholder:"N" help:"Size of a value row; default --dim." group:"grid"`
	Heads   []int    `default:"1" placeholder:"N" help:"Query heads (${default})." group:"grid"`
	KVHeads []int    `name:"kv-heads" placeholder:"N" help:"Key and value heads, which divide --heads; default --heads." group:"grid"`
	Batch   []int    `default:"1" placeholder:"N" help:"Batch entries (${default})." group:"grid"`
	Threads []int    `default:"1" placeholder:"N" help:"Threads (${default})." group:"grid"`
	Layout  []string `default:"bhsd" placeholder:"NAME" help:"Order of the operands in memory: bhsd, bshd or packed (${default})." group:"grid"`
	Data    []string `default:"normal" placeholder:"NAME" help:"Inputs: normal, std30, rising or sparse (${default})." group:"grid"`
	With    []string `placeholder:"FEATURE[+FEATURE]" help:"What a point does besides, such as lse, bias, temp:2 or, for linear attention, relu+1; nothing between two commas is the plain point. They are listed above." group:"grid"`
	Store   []string `default:"f32" placeholder:"TYPE" help:"Elements of keys and values: f32, f16, bf16 or int8 (${default})." group:"grid"`
	Page    []int    `default:"0" placeholder:"N" help:"Rows in a page of the cache, a power of two of 8 or more; 0 is contiguous (${default})." group:"grid"`

	Pass []string `default:"forward" placeholder:"PASS" help:"forward, backward or both." group:"grid"`

	Layer []string `placeholder:"NAME" help:"What is timed around the kernel: mha, block or decode; nothing between two commas is the kernel alone. See above." group:"grid"`

	best bool // without --isa, only the best instruction set of a kernel
}

// gridFlags are the names of the flags of a Grid. A run that is resumed keeps their values.
var gridFlags = []string{
	"kernel", "isa", "mask", "seq", "seq-kv", "dim", "dim-v", "heads", "kv-heads", "batch", "threads", "layout", "data", "with", "pass", "store", "page",
	"layer", "peer",
}

// mostPoints is a size of grid that can only be a mistake.
const mostPoints = 100_000

// points lists the grid's points, each once: problems in the order of the flags, and the kernels
// that compete on a problem together. Kernels that nobody asked for by name, and whose kind of
// attention does not have a feature, are left out, and tell says so.
func (g *Grid) points(all []attn.Kernel, tell io.Writer) ([]run.Point, error) {
	if err := g.check(all); err != nil {
		return nil, err
	}
	contenders, err := g.contenders(all)
	if err != nil {
		return nil, err
	}
	var anywhere attn.Needs // what any kernel does
	for _, k := range all {
		anywhere |= harness.Powers(k)
	}
	var points []run.Point
	seen := map[run.Point]bool{}
	var remarks []string
	add := func(p run.Point) error {
		var leftOut error
		competing := 0
		for _, c := range contenders {
			p.Kernel, p.ISA, p.Op = c.Kernel, c.ISA, c.Op
			full := p.WithDefaults()
			q, err := full.Problem()
			if other := new(run.OtherOpError); len(g.Kernel) == 0 && errors.As(err, &other) {
				leftOut = exitf(exitUsage, "%s: %w", flagged(full), err)
				line := fmt.Sprintf("%s is left out where there is %s, which op %s does not have", c.Kernel, other.Feature, other.Op)
				if !slices.Contains(remarks, line) {
					remarks = append(remarks, line)
				}
				continue
			}
			if err != nil {
				return exitf(exitUsage, "%s: %w", flagged(full), err)
			}
			competing++
			if lack := q.Needs() &^ anywhere; lack != 0 {
				return exitf(exitUsage, "%s: no kernel of this version does %v", flagged(full), lack)
			}
			if !seen[full] {
				seen[full] = true
				points = append(points, full)
			}
		}
		if competing == 0 {
			return leftOut
		}
		if len(points) > mostPoints {
			return exitf(exitUsage, "the grid has more than %d points: fewer values, please", mostPoints)
		}
		return nil
	}
	if err := g.each(add); err != nil {
		return nil, err
	}
	for _, line := range remarks {
		fmt.Fprintln(tell, line)
	}
	return points, nil
}

// each calls f for every problem of the grid.
func (g *Grid) each(f func(run.Point) error) error {
	points := []run.Point{{}}
	for _, axis := range []struct {
		text   []string
		number []int
		set    func(p *run.Point, s string, n int)
	}{
		{text: g.Layer, set: func(p *run.Point, s string, _ int) { p.Layer = s }},
		{text: g.Pass, set: func(p *run.Point, s string, _ int) { p.Pass = s }},
		{text: g.Mask, set: func(p *run.Point, s string, _ int) { p.Mask = s }},
		{number: g.Batch, set: func(p *run.Point, _ string, n int) { p.Batch = n }},
		{number: g.Heads, set: func(p *run.Point, _ string, n int) { p.HeadsQ = n }},
		{number: g.KVHeads, set: func(p *run.Point, _ string, n int) { p.HeadsKV = n }},
		{number: g.Dim, set: func(p *run.Point, _ string, n int) { p.Dim = n }},
		{number: g.DimV, set: func(p *run.Point, _ string, n int) { p.DimV = n }},
		{text: g.Layout, set: func(p *run.Point, s string, _ int) { p.Layout = s }},
		{text: g.Data, set: func(p *run.Point, s string, _ int) { p.Data = s }},
		{text: g.With, set: func(p *run.Point, s string, _ int) { p.Features = s }},
		{text: g.Store, set: func(p *run.Point, s string, _ int) { p.Store = s }},
		{number: g.Page, set: func(p *run.Point, _ string, n int) { p.Page = n }},
		{number: g.Threads, set: func(p *run.Point, _ string, n int) { p.Threads = n }},
		{number: g.SeqKV, set: func(p *run.Point, _ string, n int) { p.SeqKV = n }},
		{number: g.Seq, set: func(p *run.Point, _ string, n int) {
			p.SeqQ = n
			if p.SeqKV == 0 {
				p.SeqKV = n
				if p.Layer == run.LayerDecode { // --seq is the length of what there is to read
					p.SeqQ = 1
				}
			}
		}},
	} {
		var next []run.Point
		for _, p := range points {
			for i := range max(1, len(axis.text), len(axis.number)) {
				q := p
				switch {
				case len(axis.text) > 0:
					axis.set(&q, axis.text[i], 0)
				case len(axis.number) > 0:
					axis.set(&q, "", axis.number[i])
				}
				next = append(next, q)
			}
			if len(next) > mostPoints {
				return exitf(exitUsage, "the grid has more than %d points: fewer values, please", mostPoints)
			}
		}
		points = next
	}
	for _, p := range points {
		if err := f(p); err != nil {
			return err
		}
	}
	return nil
}

// empty is whether a flag was given without a value.
func empty[T any](values []T) bool { return values != nil && len(values) == 0 }

// check refuses values of single flags, naming the flag.
func (g *Grid) check(all []attn.Kernel) error {
	if err := known("kernel", g.Kernel, algorithms(all)); err != nil {
		return err
	}
	if err := known("isa", g.ISA, knownISAs(all)); err != nil {
		return err
	}
	for _, f := range []struct {
		name  string
		empty bool
	}{
		{"kernel", empty(g.Kernel)},
		{"isa", empty(g.ISA)},
		{"mask", empty(g.Mask)},
		{"pass", empty(g.Pass)},
		{"seq", empty(g.Seq)},
		{"seq-kv", empty(g.SeqKV)},
		{"dim", empty(g.Dim)},
		{"dim-v", empty(g.DimV)},
		{"heads", empty(g.Heads)},
		{"kv-heads", empty(g.KVHeads)},
		{"batch", empty(g.Batch)},
		{"threads", empty(g.Threads)},
		{"store", empty(g.Store)},
		{"page", empty(g.Page)},
		{"layout", empty(g.Layout)},
		{"data", empty(g.Data)},
	} {
		if f.empty {
			return exitf(exitUsage, "--%s: nothing is given, want a value or leave the flag out", f.name)
		}
	}
	for _, f := range []struct {
		name   string
		values []int
	}{
		{"seq", g.Seq},
		{"seq-kv", g.SeqKV},
		{"dim", g.Dim},
		{"dim-v", g.DimV},
		{"heads", g.Heads},
		{"kv-heads", g.KVHeads},
		{"batch", g.Batch},
		{"threads", g.Threads},
	} {
		for _, n := range f.values {
			if n < 1 {
				return exitf(exitUsage, "--%s %d: want 1 or more", f.name, n)
			}
		}
	}
	for _, m := range g.Mask {
		if _, err := run.ParseMask(m); err != nil {
			return exitf(exitUsage, "--mask %s: %w", m, err)
		}
	}
	for _, f := range []struct {
		name        string
		values, now []string
	}{
		{"pass", g.Pass, []string{"forward", "backward", "both"}},
		{"store", g.Store, []string{"f32", "f16", "bf16", "int8"}},
		{"layout", g.Layout, []string{"bhsd", "bshd", "packed"}},
		{"data", g.Data, []string{"normal", "std30", "rising", "sparse"}},
		{"layer", slices.DeleteFunc(slices.Clone(g.Layer), func(s string) bool { return s == "" }), run.Layers()},
	} {
		for _, v := range f.values {
			if !slices.Contains(f.now, v) {
				return exitf(exitUsage, "--%s %s: one of %s", f.name, v, strings.Join(f.now, ", "))
			}
		}
	}
	for _, n := range g.Page {
		if n != 0 && (n < 8 || n&(n-1) != 0) {
			return exitf(exitUsage, "--page %d: want a power of two of 8 or more, or 0 for none", n)
		}
	}
	return nil
}

// contenders lists what competes on every problem: kernel, instruction set and kind of attention.
// What was asked for by name stays in even if there is no such thing here: it becomes a skipped row
// with the reason.
func (g *Grid) contenders(all []attn.Kernel) ([]run.Point, error) {
	algos, isas := g.Kernel, g.ISA
	if len(algos) == 0 {
		algos = algorithms(all)
	}
	if len(isas) == 0 {
		isas = defaultISAs(all)
	}
	var list []run.Point
	for _, algo := range algos {
		for _, op := range ops(all, algo) {
			has := isasOf(all, algo)
			try := isas
			if slices.Contains(has, attn.Native) { // it chooses for itself
				try = has
			} else if g.best && len(g.ISA) == 0 {
				try = has[len(has)-1:]
			}
			for _, isa := range try {
				there := slices.Contains(has, isa)
				asked := len(g.ISA) > 0 && (len(g.Kernel) > 0 || unavailable(isa))
				if there || asked {
					list = append(list, run.Point{Kernel: algo, ISA: isa, Op: op})
				}
			}
		}
	}
	if len(list) == 0 {
		return nil, exitf(exitUsage, "--kernel %s --isa %s: no such kernel", strings.Join(algos, ","), strings.Join(isas, ","))
	}
	return list, nil
}

// unavailable says that an instruction set is known and not to be had here.
func unavailable(isa string) bool {
	return slices.ContainsFunc(asm.Levels(), func(v asm.Level) bool { return v.ISA == isa && !v.Available })
}

// defaultISAs is the best level of this machine and the portable one, and what kernels run on
// besides levels.
func defaultISAs(all []attn.Kernel) []string {
	here := availableISAs()
	best := here[len(here)-1]
	var names []string
	for _, isa := range knownISAs(all) {
		level := slices.ContainsFunc(asm.Levels(), func(v asm.Level) bool { return v.ISA == isa })
		if !level || isa == best || isa == here[0] {
			names = append(names, isa)
		}
	}
	return names
}

// ops lists the kinds of attention that an algorithm does.
func ops(all []attn.Kernel, algo string) []string {
	var names []string
	for _, k := range all {
		a, _ := k.Name()
		if a != algo {
			continue
		}
		for _, op := range attn.OpsOf(k) {
			if !slices.Contains(names, op.String()) {
				names = append(names, op.String())
			}
		}
	}
	slices.Sort(names)
	return names
}

// flagged names a point in the words of the command line, for messages.
func flagged(p run.Point) string {
	s := fmt.Sprintf("--kernel %s --heads %d", p.Kernel, p.HeadsQ)
	if p.HeadsKV != p.HeadsQ {
		s += fmt.Sprintf(" --kv-heads %d", p.HeadsKV)
	}
	s += fmt.Sprintf(" --seq %d", p.SeqQ)
	if p.SeqKV != p.SeqQ {
		s += fmt.Sprintf(" --seq-kv %d", p.SeqKV)
	}
	if p.Layout != "bhsd" {
		s += " --layout " + p.Layout
	}
	if p.Features != "" {
		s += " --with " + p.Features
	}
	if p.Store != attn.F32.String() {
		s += " --store " + p.Store
	}
	if p.Page != 0 {
		s += fmt.Sprintf(" --page %d", p.Page)
	}
	if p.Layer != "" {
		s += " --layer " + p.Layer + " --pass " + p.Pass
	}
	return s
}
