package run

import (
	"fmt"
	"maps"
	"slices"
)

// Paths maps Point.Contender to the path of the kernel (attn.Tuned). A kernel without an entry has
// no choices, or its program does not report them.
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

// Differences lists the kernels whose path differs, as texts. A kernel with a path on one side only
// does not differ.
func (p Paths) Differences(now Paths) []string {
	var d []string
	for _, name := range slices.Sorted(maps.Keys(p)) {
		if was, is := p[name], now[name]; was != "" && is != "" && was != is {
			d = append(d, fmt.Sprintf("the path of %s is %s, was %s", name, is, was))
		}
	}
	return d
}

// OtherPath returns a note if two plans of one kernel have different paths, and "" otherwise. Such
// plans are not compared. The sides name where the plans are from, such as base and head.
func OtherPath(a, b *Plan, sides [2]string) string {
	if name := a.Point.Contender(); name == b.Point.Contender() && a.Path != "" && b.Path != "" && a.Path != b.Path {
		return fmt.Sprintf("%s took the path %s in %s and %s in %s: another kernel, not compared", name, a.Path, sides[0], b.Path, sides[1])
	}
	return ""
}
