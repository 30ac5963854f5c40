package run

import (
	"io"
	"maps"
	"slices"

	"golang.org/x/perf/benchfmt"
)

// units holds the units of bench.txt whose better direction is known. Exact figures are compared
// without statistics: a single byte more is a difference.
var units = [...]struct {
	unit, better string
	exact        bool
}{
	{unit: "sec/op", better: "lower"},
	{unit: "FLOP/s", better: "higher"},
	{unit: "%peak", better: "higher"},
	{unit: "B/s", better: "higher"},
	{unit: "scratch-B", better: "lower", exact: true},
	{unit: "rss-B", better: "lower"},
	{unit: "allocs/op", better: "lower", exact: true},
	{unit: "tokens/s", better: "higher"},
	{unit: "%attention-peak", better: "higher"},
}

// WriteBench writes every sample in the Go benchmark format, point by point.
//
// The configuration lines are the ones that go test prints for BenchmarkAttention in package
// kernels, so that the two kinds of file can be compared. They do not change from run to run, since
// benchstat makes one table for each configuration.
//
// What the CPU counted has no better direction: more instructions may take less time. The shares of
// a layer's time, %attention and %products, have none either.
//
// Exact figures are on every line of a point. Peak memory is measured once, so it is on the first
// line alone.
func (r *Run) WriteBench(w io.Writer) error {
	out := benchfmt.NewWriter(w)
	for _, u := range units {
		m := benchfmt.UnitMetadata{UnitMetadataKey: benchfmt.UnitMetadataKey{Unit: u.unit, Key: "better"}, OrigUnit: u.unit, Value: u.better}
		if err := out.Write(&m); err != nil {
			return err
		}
		if u.exact {
			m.Key, m.Value = "assume", "exact"
			if err := out.Write(&m); err != nil {
				return err
			}
		}
	}
	var config []benchfmt.Config
	for _, c := range [...]struct{ key, value string }{
		{"goos", r.Meta.Machine.OS}, {"goarch", r.Meta.Machine.Arch}, {"pkg", module + "/kernels"}, {"cpu", r.Meta.Machine.CPU},
	} {
		if c.value != "" {
			config = append(config, benchfmt.Config{Key: c.key, Value: []byte(c.value), File: true})
		}
	}
	for _, c := range r.Cells {
		if err := c.writeBench(out, config); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cell) writeBench(out *benchfmt.Writer, config []benchfmt.Config) error {
	row := c.Row()
	if row.Status == Failed {
		return nil
	}
	for i := range c.Visits {
		v := &c.Visits[i]
		ns := v.Nanoseconds()
		res := benchfmt.Result{Config: config, Name: benchfmt.Name(c.Point.Name()), Iters: v.Calls}
		add := func(x float64, unit string) {
			if Known(x) {
				res.Values = append(res.Values, benchfmt.Value{Value: x, Unit: unit})
			}
		}
		add(ns/1e9, "sec/op")
		add(float64(c.Flop)/ns*1e9, "FLOP/s")
		if s, ok := c.sample(v); ok && !v.Dropped && v.Unit == ProbeFlop {
			add(100*s.Share(), "%peak")
		}
		if v.Unit == ProbeBytes {
			add(float64(c.Bytes)/ns*1e9, "B/s")
		}
		add(row.Scratch, "scratch-B")
		if i == 0 {
			add(row.RSS, "rss-B")
		}
		add(row.Allocs, "allocs/op")
		if c.Point.Layer != "" {
			add(float64(c.Point.Tokens())/ns*1e9, "tokens/s")
			add(100*float64(v.Attention)/float64(v.Wall), "%attention")
			add(100*float64(v.Products)/float64(v.Wall), "%products")
			if share, ok := c.attentionShare(v); ok && !v.Dropped {
				add(100*share, "%attention-peak")
			}
		}
		for _, name := range slices.Sorted(maps.Keys(v.Counts)) {
			add(float64(v.Counts[name])/float64(v.Calls), name+"/op")
		}
		if err := out.Write(&res); err != nil {
			return err
		}
	}
	return nil
}
