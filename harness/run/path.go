package run

import (
	"fmt"
	"maps"
	"slices"
)

// Paths are the paths of kernels (attn.Tuned), by Point.Contender. A kernel that is not among them
// names none: it has no choices, or its program does not report them.
type Paths map[string]string

// Of returns the paths of the kernels of these points.
func (p Paths) Of(points []Point) Paths {
	var of Paths
	for _, at := range points {
		name := at.Contender()
		if p[name] == "" {
			continue
		}
		if of == nil {
			of = Paths{}
		}
		of[name] = p[name]
	}
	return of
}

// Differences lists the kernels whose path differs. A kernel that names a path on one side only is
// not among them.
func (p Paths) Differences(now Paths) []string {
	var d []string
	for _, name := range slices.Sorted(maps.Keys(p)) {
		if was, is := p[name], now[name]; was != "" && is != "" && was != is {
			d = append(d, fmt.Sprintf("the path of %s is %s, was %s", name, is, was))
		}
	}
	return d
}

// OtherPath returns a note if two plans of one kernel name different paths, which are not to be
// compared then, and "" otherwise. The sides are where the plans are from, such as the base and
// the head.
func OtherPath(a, b *Plan, sides [2]string) string {
	if name := a.Point.Contender(); name == b.Point.Contender() && a.Path != "" && b.Path != "" && a.Path != b.Path {
		return fmt.Sprintf("%s took the path %s in %s and %s in %s: another kernel, not compared", name, a.Path, sides[0], b.Path, sides[1])
	}
	return ""
}
