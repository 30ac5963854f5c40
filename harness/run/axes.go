package run

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"attnlab/attn"
)

// A Point identifies one cell of a sweep: one kernel on one problem in one setting, alone or in a
// layer. It is comparable. WithDefaults gives the one spelling of a cell.
//
// Each field is an axis, which has a row in the table below. Fields are in the order of the columns
// of sweep.csv and of the keys in names. The JSON name of a field is the name of its column. A
// field that is added must be omitted from JSON where it has its default, so that journals keep
// their bytes.
type Point struct {
	Kernel   string `json:"kernel"`
	ISA      string `json:"isa"`
	Op       string `json:"op"`
	Pass     string `json:"pass"`
	Mask     string `json:"mask"`
	Batch    int    `json:"batch"`
	HeadsQ   int    `json:"heads_q"`
	HeadsKV  int    `json:"heads_kv"`
	SeqQ     int    `json:"seq_q"`
	SeqKV    int    `json:"seq_kv"`
	Dim      int    `json:"dim"`
	DimV     int    `json:"dim_v"`
	Layout   string `json:"layout"`
	Data     string `json:"data"`     // distribution of the inputs
	Features string `json:"features"` // joined by +; see Problem
	Store    string `json:"store"`    // element type of keys and values
	Page     int    `json:"page"`     // rows of a page of the cache; 0 means contiguous
	Threads  int    `json:"threads"`
	Rule     string `json:"rule,omitempty"`    // one of Rules; empty is plain
	HeadsV   int    `json:"heads_v,omitempty"` // 0 means heads_kv
	Layer    string `json:"layer,omitempty"`   // one of Layers; empty is the kernel alone
}

// axes is the table of axes, in the order in which help lists their flags. A row is all that names,
// tables, messages and the command line know of an axis.
var axes = indexed([]Axis{
	{
		Column: "kernel", Key: "kernel", Always: true, Contender: true,
		Flag: Flag{Name: "kernel", Placeholder: "NAME", Help: "Kernels; default all. See benchrun list."},
	},
	{
		Column: "isa", Key: "isa", Always: true, Contender: true,
		Flag: Flag{Name: "isa", Placeholder: "NAME", Help: "Instruction sets; default the best one and the portable one, in ab the best one that a kernel has."},
	},
	{
		Column: "op", Key: "op", Default: attn.OpSoftmax.String(),
	},
	{
		Column: "mask", Key: "mask", Always: true, Default: "full", check: func(v string) error { _, err := parseMask(v); return err },
		Flag: Flag{Name: "mask", Default: "full,causal", Help: "full, causal, causal-topleft, or window:L:R: L keys before a query's position and R after it, inf for no limit (${default})."},
	},
	{
		Column: "seq_q", Key: "seqq", Like: "seq_kv", check: atLeast1,
		Flag: Flag{Name: "seq", Default: "256,512,1024,2048", Placeholder: "N", Help: "Query rows, and key rows unless --seq-kv is given (${default}; in ab 512,2048).", Depth: 2},
	},
	{
		Column: "seq_kv", Key: "seq", Always: true, check: atLeast1,
		Flag: Flag{Name: "seq-kv", Placeholder: "N", Help: "Key rows; default --seq. Decoding is --seq 1 --seq-kv N.", Depth: 1},
	},
	{
		Column: "dim", Key: "dim", Always: true, check: atLeast1,
		Flag: Flag{Name: "dim", Default: "64", Placeholder: "N", Help: "Size of a query and a key row (${default})."},
	},
	{
		Column: "dim_v", Key: "dimv", Like: "dim", check: atLeast1,
		Flag: Flag{Name: "dim-v", Placeholder: "N", Help: "Size of a value row; default --dim."},
	},
	{
		Column: "heads_q", Key: "heads", Always: true, Default: "1", check: atLeast1,
		Flag: Flag{Name: "heads", Placeholder: "N", Help: "Query heads (${default})."},
	},
	{
		Column: "heads_kv", Key: "kvheads", Like: "heads_q", check: atLeast1,
		Flag: Flag{Name: "kv-heads", Placeholder: "N", Help: "Key and value heads, a divisor of --heads; default --heads."},
	},
	{
		Column: "heads_v", Key: "vheads", Default: "0", check: atLeast0,
		Flag: Flag{Name: "heads-v", Placeholder: "N", Help: "Value heads of linear attention: a multiple or a divisor of --kv-heads; 0 means as many (${default})."},
	},
	{
		Column: "batch", Key: "batch", Default: "1", check: atLeast1,
		Flag: Flag{Name: "batch", Placeholder: "N", Help: "Batch entries (${default})."},
	},
	{
		Column: "threads", Key: "threads", Always: true, Default: "1", check: atLeast1,
		Flag: Flag{Name: "threads", Placeholder: "N", Help: "Threads (${default})."},
	},
	{
		Column: "layout", Key: "layout", Default: "bhsd", check: oneOf("bhsd", "bshd", "packed"),
		Flag: Flag{Name: "layout", Placeholder: "NAME", Help: "Order of the operands in memory: bhsd, bshd or packed (${default})."},
	},
	{
		Column: "data", Key: "data", Default: "normal", check: oneOf("normal", "std30", "rising", "sparse"),
		Flag: Flag{Name: "data", Placeholder: "NAME", Help: "Distribution of the inputs: normal, std30, rising or sparse (${default})."},
	},
	{
		Column: "rule", Key: "rule", Optional: true, Alias: plainRule, check: oneOf(Rules()...),
		Flag: Flag{Name: "rule", Placeholder: "NAME", Help: "Rule of linear attention: plain, gated, delta, gated-delta, kda, gla, ssd, retnet or lightning (described in benchrun sweep --help). Default plain."},
	},
	{
		Column: "features", Key: "features", Optional: true, // a list depends on op: see Problem
		Flag: Flag{Name: "with", Placeholder: "FEATURE[+FEATURE]", Help: "Features of a point, joined by +: lse, bias, temp:2, ... (listed in benchrun sweep --help). An empty entry is the plain point, so --with ,bias measures both."},
	},
	{
		Column: "store", Key: "store", Default: attn.F32.String(), check: func(v string) error { _, err := parseStore(v); return err },
		Flag: Flag{Name: "store", Placeholder: "TYPE", Help: "Element type of keys and values: f32, f16, bf16 or int8 (${default})."},
	},
	{
		Column: "page", Key: "page", Default: "0", check: pageSize,
		Flag: Flag{Name: "page", Placeholder: "N", Help: "Rows per page of the cache, a power of two from 8; 0 means contiguous (${default})."},
	},
	{
		Column: "pass", Key: "pass", Always: true, Default: "forward", check: oneOf("forward", "backward", "both"),
		Flag: Flag{Name: "pass", Placeholder: "PASS", Help: "forward, backward or both (${default})."},
	},
	{
		Column: "layer", Key: "layer", Optional: true, check: oneOf(Layers()...),
		Flag: Flag{Name: "layer", Placeholder: "NAME", Help: "Layer timed around the kernel: mha, block or decode (described in benchrun sweep --help). An empty entry is the kernel alone, so --layer ,mha measures both.", Depth: -1},
	},
})

// keys is the same table in the order of Point's fields: that of columns, and of keys in names.
var keys = slices.SortedFunc(slices.Values(axes), func(a, b Axis) int { return cmp.Compare(a.field, b.field) })

// An Axis is one respect in which points differ, such as the mask: a field of Point, and a row of
// the table of axes.
type Axis struct {
	// Column names the axis in journals and in sweep.csv. It is the JSON name of its field of
	// Point.
	Column string

	// Key names the axis in names of points.
	Key string

	// Always reports whether names of points show the axis even where it has its default.
	Always bool

	// Default is the value of a point that leaves the axis unset.
	Default string

	// Like is the column of the axis whose value is used instead of a Default.
	Like string

	// Optional reports whether the empty text is a value of the axis.
	Optional bool

	// Alias is a word that Set takes for the empty text, if it is not empty.
	Alias string

	// Contender reports whether the axis names what competes on a problem. Groups leave it out.
	Contender bool

	// Flag sets the axis on the command line.
	Flag Flag

	check func(value string) error // nil accepts every word
	field int                      // index of its field of Point
}

// A Flag is the flag of an axis. Without a Name there is none.
type Flag struct {
	Name, Placeholder string

	// Help describes the values, the default and an example. ${default} stands for Default.
	Help string

	// Default is a list of values, separated by commas. If it is empty, it is the axis's.
	Default string

	// Depth orders the loops over a grid: axes of greater depth vary faster. Of the same depth, the
	// axis whose column is farther right varies faster.
	Depth int
}

// Axes returns the axes of points, in the order in which help lists their flags.
func Axes() []Axis { return slices.Clone(axes) }

// indexed finds the field of each axis, and gives each flag its default.
func indexed(table []Axis) []Axis {
	point := reflect.TypeFor[Point]()
	for i := range table {
		a := &table[i]
		a.Flag.Default = cmp.Or(a.Flag.Default, a.Default)
		for a.field = 0; columnOf(point.Field(a.field)) != a.Column; {
			a.field++
		}
	}
	return table
}

// columnOf returns the name of the column that a field of Point is.
func columnOf(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}

// axis returns the axis of a column.
func axis(column string) *Axis {
	return &axes[slices.IndexFunc(axes, func(a Axis) bool { return a.Column == column })]
}

func (a *Axis) in(p *Point) reflect.Value { return reflect.ValueOf(p).Elem().Field(a.field) }

// Plain returns the value of a point that leaves the axis unset, empty if it has none. It may
// depend on the point's values on other axes.
func (a *Axis) Plain(p Point) string {
	switch {
	case a.Like != "":
		return axis(a.Like).Value(p)
	case a.Column == "features": // linear attention has a feature map
		list, _ := orderFeatures(p.Op, p.Rule, "")
		return list
	}
	return a.Default
}

// Number reports whether the values of the axis are whole numbers.
func (a *Axis) Number() bool { return a.in(new(Point)).Kind() == reflect.Int }

// Value returns the value that a point has on the axis.
func (a *Axis) Value(p Point) string {
	if v := a.in(&p); v.Kind() == reflect.String {
		return v.String()
	}
	return strconv.FormatInt(a.in(&p).Int(), 10)
}

// Set gives a point a value on the axis. It reads numbers, and does not check what Check does.
func (a *Axis) Set(p *Point, value string) error {
	v := a.in(p)
	if value == a.Alias {
		value = ""
	}
	if v.Kind() == reflect.String {
		v.SetString(value)
		return nil
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		return fmt.Errorf("%s: %q is not a whole number", a.Column, value)
	}
	v.SetInt(int64(n))
	return nil
}

// word is what a value may be: no space, slash or equals sign, which a benchmark name could not
// carry.
var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:+-]*$`)

// Check reports what is wrong with a value of the axis by itself. The error names neither the axis
// nor the value: the caller does.
func (a *Axis) Check(value string) error {
	switch {
	case value == a.Alias && a.Optional, value == "" && a.Optional:
		return nil
	case a.check != nil:
		return a.check(value)
	case !word.MatchString(value):
		return errors.New("want letters, digits and . _ : + -, a letter or a digit first")
	}
	return nil
}

func atLeast1(value string) error {
	if n, err := strconv.Atoi(value); err != nil || n < 1 {
		return errors.New("want 1 or more")
	}
	return nil
}

func atLeast0(value string) error {
	if n, err := strconv.Atoi(value); err != nil || n < 0 {
		return errors.New("want 1 or more, or 0 for the default")
	}
	return nil
}

func pageSize(value string) error {
	if n, err := strconv.Atoi(value); err != nil || n != 0 && (n < 8 || n&(n-1) != 0) {
		return errors.New("want a power of two of 8 or more, or 0 for contiguous rows")
	}
	return nil
}

func oneOf(names ...string) func(string) error {
	return func(value string) error {
		if !slices.Contains(names, value) {
			return fmt.Errorf("one of %s", strings.Join(names, ", "))
		}
		return nil
	}
}
