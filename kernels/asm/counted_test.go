//go:build (amd64 || arm64) && !purego

package asm

import (
	"fmt"
	"reflect"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"unsafe"
)

// Bounds of one call.
const (
	MostProducts = mostProducts
	MostBytes    = mostBytes
)

// A Call is one call of a loop in assembly.
type Call struct {
	Loop     string // name, such as Score or packed Score
	Products int    // multiply-adds
	Bytes    int    // bytes of its operands, each counted once
	Least    bool   // it is the least that a call computes
}

// Counted returns the instruction sets that this machine runs. Their loops pass each of their calls
// to see before they run.
func Counted(see func(Call)) (all []*Ops) {
	for _, level := range Levels() {
		for _, set := range sets {
			if !level.Available || set.isa != level.ISA || set.panel.score == nil { // or some loops
				continue
			}
			l := *set
			counting{set, see}.wrap(reflect.ValueOf(&l).Elem())
			all = append(all, l.ops(level.Ops.Tuning))
		}
	}
	return all
}

type counting struct {
	*loops
	see func(Call)
}

// wrap replaces each loop in a value by one that reports its calls.
func (c counting) wrap(v reflect.Value) {
	v = reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem() // the field is not exported
	switch v.Kind() {
	case reflect.Func:
		if v.IsNil() { // the portable loop is used
			return
		}
		name := runtime.FuncForPC(v.Pointer()).Name()
		cost := c.cost(name[strings.LastIndex(name, ".")+1:])
		loop := reflect.ValueOf(v.Interface())
		v.Set(reflect.MakeFunc(v.Type(), func(args []reflect.Value) []reflect.Value {
			c.see(cost(args))
			return loop.Call(args)
		}))
	case reflect.Struct:
		for i := range v.NumField() {
			c.wrap(v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			c.wrap(v.Index(i))
		}
	case reflect.Slice:
		if v.IsNil() {
			return
		}
		own := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(own, v)
		v.Set(own)
		for i := range v.Len() {
			c.wrap(v.Index(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			own := reflect.New(v.Type().Elem())
			own.Elem().Set(v.Elem())
			v.Set(own)
			c.wrap(own.Elem())
		}
	}
}

var (
	loopName = regexp.MustCompile(`^([a-z0-9]+)([A-Za-z0-9]*?)(Floored)?(F16|BF16|I8)?(NonTemporal|Temporal)?(Single)?(?:(\d+)(?:x(\d+))?)?$`)
	ofType   = map[string]int{"": 4, "F16": 2, "BF16": 2, "I8": 1}
)

// cost returns a function that computes a Call from the arguments of a loop, which is given by the
// name of its function.
func (c counting) cost(name string) func(args []reflect.Value) Call {
	parts := loopName.FindStringSubmatch(name)
	if parts == nil {
		panic("no loop has a name like " + name)
	}
	loop, size := strings.TrimSuffix(parts[2], "Sums"), ofType[parts[4]]
	number := func(s string) int {
		n, _ := strconv.Atoi(s)
		return n
	}
	lanes, second := number(parts[7])*c.vec, number(parts[8])*c.vec
	call := func(unit bool, products, floats int) Call { return Call{loop, products, 4 * floats, unit} }
	i := func(v reflect.Value) int { return int(v.Int()) }
	// panel returns the panel of a call, and walk the Walk of a call of Dot or Sum.
	panel := func(v reflect.Value) *Panel { return v.Elem().FieldByName("Panel").Addr().Interface().(*Panel) }
	walk := func(v reflect.Value) *Walk {
		if dot, ok := v.Interface().(*Dot); ok {
			return &dot.Walk
		}
		return v.Interface().(*Walk)
	}

	if parts[1] == "amx" {
		loop = "packed " + loop
		// tile returns the Call of a product of rows, columns and lanes with packed operands.
		tile := func(rows, columns, lanes int) Call {
			return Call{loop, rows * columns * lanes, 6*rows*columns + 6*columns*lanes + 4*rows*lanes, rows <= tileRows}
		}
		switch parts[2] {
		case "Score":
			return func(a []reflect.Value) Call { return tile(tileRows*i(a[3]), tileDepth*i(a[4]), lanes) }
		case "Flash":
			return func(a []reflect.Value) Call { return tile(tileRows*i(a[5]), tileDepth*i(a[6]), lanes) }
		case "Mix":
			return func(a []reflect.Value) Call { return tile(i(a[4]), i(a[6]), c.vec) }
		case "DScore":
			return func(a []reflect.Value) Call { return tile(i(a[4]), tileDepth*i(a[5]), lanes) }
		case "Outer":
			return func(a []reflect.Value) Call { return tile(i(a[3]), number(parts[7])*tileRows, second) }
		case "HideOutside":
			return func(a []reflect.Value) Call { return call(false, 0, i(a[4])*lanes) }
		case "PackRows", "PackColumns", "PackLanes", "PackLines", "PackLinePairs":
			return func(a []reflect.Value) Call { return call(false, 0, 3*2*tileSize) }
		case "Peak", "Chain", "Slots":
			return func([]reflect.Value) Call { return call(false, 0, 0) }
		}
		panic("nothing counts " + name)
	}

	switch loop {
	case "Score":
		return func(a []reflect.Value) Call {
			d, n := a[0].Interface().(*Product).D, i(a[3])-i(a[2])
			return call(n <= c.keys, n*d*lanes, n*(d+lanes)+d*lanes)
		}
	case "Flash":
		return func(a []reflect.Value) Call {
			q, n := a[0].Interface().(*Flash), i(a[2])-i(a[1])
			if q.Until != nil {
				n = q.Until[lanes/c.vec-1] - i(a[1])
			}
			return call(n <= c.keys, n*q.D*lanes, n*(q.D+lanes)+q.D*lanes)
		}
	case "Mix":
		return func(a []reflect.Value) Call {
			q := a[0].Interface().(*Mix)
			return call(q.C <= c.keys, q.N*q.C*lanes, q.N*(q.C+lanes)+q.C*lanes)
		}
	case "DScore":
		return func(a []reflect.Value) Call {
			q := a[0].Interface().(*DScore)
			return call(q.N <= c.keys, q.N*q.C*lanes, q.N*(q.C+lanes)+q.C*lanes)
		}
	case "Raise":
		return func(a []reflect.Value) Call {
			q := a[0].Interface().(*Softmax)
			return call(false, 0, (q.Done+i(a[1]))*q.Width)
		}
	case "Exp", "Top", "Cap", "Slope", "Hide":
		return func(a []reflect.Value) Call { return call(false, 0, (i(a[2])-i(a[1]))*panel(a[0]).Width) }
	case "Add":
		return func(a []reflect.Value) Call { return call(false, 0, 2*(i(a[2])-i(a[1]))*panel(a[0]).Width) }
	case "Outer", "OuterT":
		tile := map[string]outerLoop{"Outer": c.back.outer, "OuterT": c.back.outerT}[loop]
		return func(a []reflect.Value) Call {
			q := a[0].Interface().(*Outer)
			return call(q.N <= tile.rows && q.C <= c.vec, q.N*q.C*q.Width, q.N*q.Width+q.Width*q.C+q.N*q.C)
		}
	case "Inner":
		return func(a []reflect.Value) Call { return call(i(a[5]) <= innerRows, i(a[5])*i(a[6]), 2*i(a[5])*i(a[6])) }
	case "Dot", "Sum":
		return func(a []reflect.Value) Call {
			q := walk(a[0])
			rows := q.heads() * q.R
			least := q.N <= max(dotKeys, q.Run) && (q.Run <= dotKeys || q.Run*q.D*size <= 1<<17)
			return Call{loop, rows * q.N * q.D, q.heads()*q.N*q.D*size + 4*rows*(q.N+q.D), least}
		}
	case "ScaleKeys":
		return func(a []reflect.Value) Call {
			q := walk(a[0])
			return call(false, 0, q.heads()*q.N*(q.R+1))
		}
	case "Weigh":
		return func(a []reflect.Value) Call {
			return call(false, 0, (a[0].Interface().(*Weigh).R-i(a[1]))*i(a[2])*c.vec)
		}
	case "Widen":
		return func(a []reflect.Value) Call {
			n := i(a[2]) * i(a[3])
			return Call{loop, n, n * (4 + size), i(a[2]) == 1}
		}
	case "Narrow":
		return func(a []reflect.Value) Call { return Call{loop, 0, 6 * c.vec * i(a[2]), false} }
	case "Inverse":
		return func(a []reflect.Value) Call { return call(false, 0, 2*c.vec*i(a[2])) }
	case "Solve":
		return func(a []reflect.Value) Call {
			n, cols := i(a[8]), i(a[9])
			return call(cols <= c.vec, n*n*cols/2, 3*n*cols+n*n)
		}
	case "Step":
		return func(a []reflect.Value) Call {
			n, cols := i(a[7]), i(a[8])
			return call(cols <= c.vec, 2*n*cols, n*cols+3*n+2*cols)
		}
	case "Fade":
		return func(a []reflect.Value) Call { return call(false, 0, 2*i(a[4])*i(a[5])*c.vec) }
	case "Products":
		return func(a []reflect.Value) Call { return call(false, 0, 2*i(a[4])*i(a[5])) }
	case "Scale":
		return func(a []reflect.Value) Call { return call(i(a[5]) == 1, 0, 2*i(a[5])*i(a[6])) }
	case "Times", "Over":
		return func(a []reflect.Value) Call { return call(i(a[6]) == 1, 0, 3*i(a[6])*i(a[7])) }
	case "Elu", "Natural":
		return func(a []reflect.Value) Call { return call(false, 0, 2*i(a[2])) }
	case "Finite", "Read", "Update":
		return func(a []reflect.Value) Call { return call(false, 0, i(a[1])*c.probe.perRead) }
	case "Rotate", "RotatePairs":
		return func(a []reflect.Value) Call { return call(false, 4*i(a[3]), 4*i(a[3])) }
	case "Load", "Store":
		size := map[string]int{"avx2Load": 8 * 8, "avx2Store": 8 * 8, "avx512Load": 16 * 16, "avx512Store": 8 * 16, "neonLoad": 4 * 4, "neonStore": 4 * 4}[name]
		return func(a []reflect.Value) Call { return call(false, 0, 2*size*i(a[4])) }
	case "Peak", "Chain", "Slots": // they touch no memory, and have bounds of their own
		return func([]reflect.Value) Call { return call(false, 0, 0) }
	}
	panic(fmt.Sprintf("nothing counts %s (%s)", name, loop))
}
