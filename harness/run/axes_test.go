package run

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"attnlab/attn/cases"
)

// TestAxesAreFields checks that the table of axes has one row for each field of Point, under the
// field's JSON name, and that keys are in the order of the fields.
func TestAxesAreFields(t *testing.T) {
	point := reflect.TypeFor[Point]()
	if len(axes) != point.NumField() {
		t.Errorf("got %d rows, want %d, one for each field of Point", len(axes), point.NumField())
	}
	for i := range min(len(keys), point.NumField()) {
		if got, want := keys[i].Column, columnOf(point.Field(i)); got != want {
			t.Errorf("key %d is %s, want %s", i, got, want)
		}
	}
}

// TestAxes checks the rows of the table by themselves: names differ, defaults are accepted, and
// help says what a flag's default is.
func TestAxes(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range Axes() {
		for _, name := range []string{"column " + a.Column, "key " + a.Key, "flag " + a.Flag.Name} {
			if seen[name] && name != "flag " {
				t.Errorf("%s: %s is there twice", a.Column, name)
			}
			seen[name] = true
		}
		for _, v := range append(strings.Split(a.Flag.Default, ","), a.Default) {
			if v == "" {
				continue
			}
			if err := a.Check(v); err != nil {
				t.Errorf("%s %s: %v", a.Column, v, err)
			}
		}
		if a.Optional && a.Check("") != nil || !a.Optional && a.Column != "op" && a.Check("") == nil {
			t.Errorf("%s: Optional is %v, and the empty text: %v", a.Column, a.Optional, a.Check(""))
		}
		if a.Flag.Name != "" && (a.Flag.Default != "") != strings.Contains(a.Flag.Help, "${default}") {
			t.Errorf("--%s: the default is %q, and help is %q", a.Flag.Name, a.Flag.Default, a.Flag.Help)
		}
	}
}

// TestDataAreDistributions checks that the values of axis data are the distributions of inputs.
func TestDataAreDistributions(t *testing.T) {
	if got, want := axis("data").Check("?"), oneOf(cases.Distributions()...)("?"); got.Error() != want.Error() {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestAxisValues checks that Set gives a point the value that Value returns, of text and of
// numbers.
func TestAxisValues(t *testing.T) {
	var p Point
	for i, a := range Axes() {
		v := "x"
		if a.Number() {
			v = "7"
		}
		if err := a.Set(&p, v); err != nil || a.Value(p) != v {
			t.Errorf("%s: got %q, %v, want %q", a.Column, a.Value(p), err, v)
		}
		if i == 0 && p != (Point{Kernel: "x"}) {
			t.Errorf("got %+v, want the kernel alone", p)
		}
		if a.Alias != "" && (a.Set(&p, a.Alias) != nil || a.Value(p) != "" || a.Check(a.Alias) != nil) {
			t.Errorf("%s %s: got %q, want the empty text", a.Column, a.Alias, a.Value(p))
		}
	}
	if err := axis("dim").Set(&p, "x"); err == nil || p.Dim != 7 {
		t.Errorf("dim x: got %v and %d", err, p.Dim)
	}
	if !slices.Equal(Columns()[:2], []string{"kernel", "isa"}) {
		t.Errorf("columns %v", Columns())
	}
}
