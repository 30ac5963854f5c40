package command

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"attnlab/attn"
	"attnlab/harness/run"
	"attnlab/harness/verify"
)

// A Grid is the flags that choose points: each combination of their values is one. newGrid makes
// it.
type Grid struct {
	Peers `group:"grid"`

	// Axes is a pointer to a struct that newGrid makes from run.Axes. It has a field for each axis
	// that has a flag, with the tags that kong reads: []int for numbers, else []string.
	Axes any `embed:"" group:"grid"`

	best bool // without --isa, only the best instruction set of a kernel
}

func newGrid() Grid {
	var fields []reflect.StructField
	for _, a := range run.Axes() {
		f := a.Flag
		if f.Name == "" {
			continue
		}
		tag := fmt.Sprintf("name:%q help:%q", f.Name, f.Help)
		if f.Default != "" {
			tag += fmt.Sprintf(" default:%q", f.Default)
		}
		if f.Placeholder != "" {
			tag += fmt.Sprintf(" placeholder:%q", f.Placeholder)
		}
		kind := reflect.TypeFor[[]string]()
		if a.Number() {
			kind = reflect.TypeFor[[]int]()
		}
		fields = append(fields, reflect.StructField{Name: fieldOf(a.Column), Type: kind, Tag: reflect.StructTag(tag)})
	}
	return Grid{Axes: reflect.New(reflect.StructOf(fields)).Interface()}
}

// fieldOf names the field of Grid.Axes that holds the values of an axis.
func fieldOf(column string) string { return "Axis_" + column }

// of returns the slice that holds the values of the axis of a column.
func (g *Grid) of(column string) reflect.Value {
	return reflect.ValueOf(g.Axes).Elem().FieldByName(fieldOf(column))
}

// names returns the values of an axis that is no number.
func (g *Grid) names(column string) []string { return g.of(column).Interface().([]string) }

// set replaces the values of an axis of numbers.
func (g *Grid) set(column string, values ...int) { g.of(column).Set(reflect.ValueOf(values)) }

// values returns the values of an axis as texts.
func (g *Grid) values(column string) []string {
	v := g.of(column)
	list := make([]string, v.Len())
	for i := range list {
		list[i] = fmt.Sprint(v.Index(i))
	}
	return list
}

// gridFlags lists the names of the flags of a Grid. A run that is resumed keeps their values.
func gridFlags() []string {
	names := []string{"peer"}
	for _, a := range run.Axes() {
		if a.Flag.Name != "" {
			names = append(names, a.Flag.Name)
		}
	}
	return names
}

// mostPoints is a size of grid that can only be a mistake.
const mostPoints = 100_000

// points returns the points of the grid, each once. The kernels that compete on a problem are next
// to each other. A kernel is left out, with a remark to tell, if its kind of attention lacks a
// feature and --kernel does not name it. So is a rule, if the mask is not causal and --mask names
// causal too.
func (g *Grid) points(lab Lab, tell io.Writer) ([]run.Point, error) {
	if err := g.check(lab); err != nil {
		return nil, err
	}
	contenders, err := g.contenders(lab)
	if err != nil {
		return nil, err
	}
	var anywhere attn.Needs // abilities that some kernel has
	for _, k := range lab.Kernels {
		anywhere |= verify.Powers(k)
	}
	var points []run.Point
	seen := map[run.Point]bool{}
	var remarks []string
	remark := func(format string, a ...any) {
		if line := fmt.Sprintf(format, a...); !slices.Contains(remarks, line) {
			remarks = append(remarks, line)
		}
	}
	add := func(p run.Point) error {
		var leftOut error
		competing := 0
		for _, c := range contenders {
			p.Kernel, p.ISA, p.Op = c.Kernel, c.ISA, c.Op
			full := p.WithDefaults()
			q, err := full.Problem()
			if other := new(run.OtherOpError); len(g.names("kernel")) == 0 && errors.As(err, &other) {
				leftOut = exitf(exitUsage, "%s: %w", flagged(full), err)
				remark("%s is left out where there is %s, which op %s does not have", c.Kernel, other.Feature, other.Op)
				continue
			}
			if order := new(run.OrderError); errors.As(err, &order) && slices.Contains(g.names("mask"), attn.Causal().String()) {
				remark("rule %s is left out where the mask is %s: it reads tokens in order, as under the causal mask", order.Rule, order.Mask)
				competing++ // under another mask
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

// each calls f for every problem of the grid: a point without what competes on it.
func (g *Grid) each(f func(run.Point) error) error {
	points := []run.Point{{}}
	for _, a := range loops() {
		values := g.values(a.Column)
		if len(values) == 0 { // the default
			continue
		}
		if len(points)*len(values) > mostPoints {
			return exitf(exitUsage, "the grid has more than %d points: fewer values, please", mostPoints)
		}
		next := make([]run.Point, 0, len(points)*len(values))
		for _, p := range points {
			for _, v := range values {
				if err := a.Set(&p, v); err != nil {
					return exitf(exitUsage, "--%s %s: %w", a.Flag.Name, v, err)
				}
				next = append(next, p)
			}
		}
		points = next
	}
	for _, p := range points {
		if p.SeqKV == 0 {
			p.SeqKV = p.SeqQ
			if p.Layer == run.LayerDecode { // --seq is the length of the cache
				p.SeqQ = 1
			}
		}
		if err := f(p); err != nil {
			return err
		}
	}
	return nil
}

// loops returns the axes of a problem in the order in which their loops are nested, outermost
// first.
func loops() []run.Axis {
	at := func(a run.Axis) int { return slices.Index(run.Columns(), a.Column) }
	list := slices.DeleteFunc(run.Axes(), func(a run.Axis) bool { return a.Flag.Name == "" || a.Contender })
	slices.SortFunc(list, func(a, b run.Axis) int {
		return cmp.Or(cmp.Compare(a.Flag.Depth, b.Flag.Depth), cmp.Compare(at(a), at(b)))
	})
	return list
}

// check refuses bad values of single flags. Errors name the flag.
func (g *Grid) check(lab Lab) error {
	if err := known("kernel", g.names("kernel"), algorithms(lab.Kernels)); err != nil {
		return err
	}
	if err := known("isa", g.names("isa"), lab.knownISAs()); err != nil {
		return err
	}
	for _, a := range run.Axes() {
		if a.Flag.Name == "" {
			continue
		}
		if v := g.of(a.Column); !a.Optional && !v.IsNil() && v.Len() == 0 {
			return exitf(exitUsage, "--%s: nothing is given, want a value or leave the flag out", a.Flag.Name)
		}
		for _, v := range g.values(a.Column) {
			if err := a.Check(v); err != nil {
				return exitf(exitUsage, "--%s %s: %w", a.Flag.Name, v, err)
			}
		}
	}
	return nil
}

// contenders lists what competes on every problem: kernel, instruction set and kind of attention. A
// contender that was asked for by name is listed even if it cannot run here. It becomes a skipped
// row with the reason.
func (g *Grid) contenders(lab Lab) ([]run.Point, error) {
	all := lab.Kernels
	algos, isas := g.names("kernel"), g.names("isa")
	named, chosen := len(algos) > 0, len(isas) > 0
	if !named {
		algos = algorithms(all)
	}
	if !chosen {
		isas = lab.defaultISAs()
	}
	var list []run.Point
	for _, algo := range algos {
		for _, op := range ops(all, algo) {
			has := isasOf(all, algo)
			try := isas
			if slices.Contains(has, attn.Native) { // the kernel chooses
				try = has
			} else if g.best && !chosen {
				try = has[len(has)-1:]
			}
			for _, isa := range try {
				there := slices.Contains(has, isa)
				asked := chosen && (named || lab.Sets.Missing(isa))
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

// defaultISAs lists the best set of this machine, the portable one, and whatever kernels run on
// that is no set, such as blas.
func (l Lab) defaultISAs() []string {
	here := l.Sets.Available()
	best := here[len(here)-1]
	var names []string
	for _, isa := range l.knownISAs() {
		if _, set := l.Sets.Level(isa); !set || isa == best || isa == here[0] {
			names = append(names, isa)
		}
	}
	return names
}

// ops returns the kinds of attention that an algorithm computes.
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

// flagged describes a point by the flags of the command line, for messages. Flags that have the
// default of a point are left out.
func flagged(p run.Point) string {
	var flags []string
	for _, a := range run.Axes() {
		plain := a.Plain(p)
		switch a.Column {
		case "seq_q": // --seq also sets the key rows
			plain = ""
		case "seq_kv":
			plain = strconv.Itoa(p.SeqQ)
		}
		if v := a.Value(p); a.Flag.Name != "" && v != plain {
			flags = append(flags, "--"+a.Flag.Name+" "+v)
		}
	}
	return strings.Join(flags, " ")
}
