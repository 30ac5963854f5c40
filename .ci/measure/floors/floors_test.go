package main

import (
	"math"
	"strings"
	"testing"

	"attnlab/harness/run"
)

// row returns a row of 40 samples, 31 of them accepted; its interval reaches within on each side.
func row(share, within float64, change func(*run.Row)) run.Row {
	w := run.Row{
		Point:  run.Point{Kernel: "flash", ISA: "avx2", SeqQ: 2048, SeqKV: 2048, HeadsQ: 8, Dim: 64}.WithDefaults(),
		Status: run.OK, Samples: 40, Dropped: 9, PeakShare: run.Stat{Mid: share, Lo: share - within, Hi: share + within},
		BandwidthShare: run.Stat{Mid: math.NaN(), Lo: math.NaN(), Hi: math.NaN()}, Ns: run.Stat{Mid: 100, Lo: 99, Hi: 102},
	}
	if change != nil {
		change(&w)
	}
	return w
}

// TestJudge checks values, intervals and verdicts of one floor over rounds of rows.
func TestJudge(t *testing.T) {
	bshd := func(w *run.Row) { w.Layout = "bshd" }
	shared := func(w *run.Row) { w.HeadsKV, w.Ns = 1, run.Stat{Mid: 25, Lo: 24, Hi: 26} }
	every, is := func(*run.Row) bool { return true }, func(layout string) func(*run.Row) bool { return func(w *run.Row) bool { return w.Layout == layout } }
	for _, c := range []struct {
		name   string
		f      floor
		rounds []rows
		want   string // the last columns
	}{
		{"above", floor{least: .8, of: every}, []rows{{{row(.9, .01, nil)}}}, "| 0.900 | 0.890 0.910 | 31 | met |"},
		{"by its interval", floor{least: .905, of: every}, []rows{{{row(.9, .01, nil)}}}, "| 0.900 | 0.890 0.910 | 31 | met |"},
		{"short", floor{least: .92, of: every}, []rows{{{row(.9, .01, nil)}}}, "| 0.900 | 0.890 0.910 | 31 | **short** |"},
		{
			"the middle of three rounds decides",
			floor{least: .92, of: every},
			[]rows{{{row(.95, .01, nil)}}, {{row(.8, .15, nil)}}, {{row(.9, .01, nil)}}},
			"| 0.950 0.800 0.900 | 0.890 0.910 | 31 31 31 | **short** |",
		},
		{"a round with too few", floor{least: .8, of: every}, []rows{{{row(.9, .01, nil)}}, {{row(.9, .01, func(w *run.Row) { w.Dropped = 10 })}}}, "| 31 30 | too few samples |"},
		{"the first run of a round, if another one lacks it", floor{least: .8, of: every}, []rows{{}, {{row(.9, .01, nil)}, {row(.1, 0, nil)}}}, "| 0.900 | 0.890 0.910 | 31 | met |"},
		{"the first run of a round", floor{least: .8, of: every}, []rows{{{row(.9, .01, nil)}, {row(.1, 0, nil)}}}, "| 0.900 | 0.890 0.910 | 31 | met |"},
		{
			"over another row",
			floor{least: .97, of: is("bshd"), base: func(p *run.Point) { p.Layout = "bhsd" }},
			[]rows{{{row(.9, .009, nil), row(.855, 0, bshd)}}},
			"| 0.950 | 0.941 0.960 | 31 | **short** |",
		},
		{"over a row that is in another run", floor{least: .97, of: is("bshd"), base: func(p *run.Point) { p.Layout = "bhsd" }}, []rows{{{row(.9, 0, nil)}, {row(.9, 0, bshd)}}}, "not measured |"},
		{
			"speed over speed",
			floor{least: 3.5, speed: true, of: func(w *run.Row) bool { return w.HeadsKV == 1 }, base: func(p *run.Point) { p.HeadsKV = 8 }},
			[]rows{{{row(.9, 0, nil), row(.9, 0, shared)}}},
			"| 4.000 | 3.808 4.250 | 31 | met |",
		},
		{"of the bandwidth", floor{least: .9, of: every}, []rows{{{row(math.NaN(), 0, func(w *run.Row) {
			w.SeqQ, w.BandwidthShare = 1, run.Stat{Mid: .91, Lo: .9, Hi: .92}
		})}}}, "| 0.910 | 0.900 0.920 | 31 | met |"},
		{"too few samples for an interval", floor{least: .8, of: every}, []rows{{{row(.9, math.NaN(), nil)}}}, "| 0.900 | NaN NaN | 31 | **short** |"},
		{"no share", floor{least: .8, of: every}, []rows{{{row(math.NaN(), 0, nil)}}}, "not measured |"},
		{"failed", floor{least: .8, of: every}, []rows{{{row(.9, 0, func(w *run.Row) { w.Status = run.Failed })}}}, "not measured |"},
	} {
		var b strings.Builder
		write(&b, judge([]floor{c.f}, c.rounds))
		if line := strings.Split(b.String(), "\n")[2]; !strings.HasSuffix(line, c.want) {
			t.Errorf("%s: %s\nwant %s", c.name, line, c.want)
		}
	}
}

// TestTable checks that each floor of the table picks the row that it is for, and no other one.
func TestTable(t *testing.T) {
	all := []run.Row{
		row(1, 0, nil),
		row(1, 0, func(w *run.Row) { w.SeqQ, w.SeqKV = 2049, 2049 }),
		row(1, 0, func(w *run.Row) { w.Dim, w.DimV = 80, 80 }),
		row(1, 0, func(w *run.Row) { w.Layout = "packed" }),
		row(1, 0, func(w *run.Row) { w.Data = "rising" }),
		row(1, 0, func(w *run.Row) { w.Threads = 2 }),
		row(1, 0, func(w *run.Row) {
			w.Kernel, w.ISA, w.Op, w.SeqQ, w.SeqKV, w.Features = "linear", "avx512", "linear", 8192, 8192, "elu+1"
		}),
		row(math.NaN(), 0, func(w *run.Row) { w.SeqQ, w.SeqKV, w.BandwidthShare.Mid = 1, 131072, 1 }),
		row(math.NaN(), 0, func(w *run.Row) { w.SeqQ, w.SeqKV, w.HeadsKV = 1, 131072, 1 }),
	}
	got := map[string]int{}
	for _, f := range judge(table(), []rows{{all}}) {
		if len(f.rounds) > 0 {
			got[f.what]++
		}
	}
	for _, want := range []string{
		"full, d = 64", "linear, full", "odd lengths over even ones", "other d over usual ones", "layouts over bhsd", "extreme scores over normal ones", "two threads over one",
		"decoding, of the bandwidth", "speed of 8 queries a key head over that of 8 key heads",
	} {
		if got[want] != 1 {
			t.Errorf("%s: %d rows, want 1", want, got[want])
		}
	}
}

// TestFoldersAreNeeded checks that no folders, and a folder without runs, are errors.
func TestFoldersAreNeeded(t *testing.T) {
	for _, dirs := range [][]string{nil, {t.TempDir()}} {
		if err := floors(dirs, new(strings.Builder)); err == nil {
			t.Errorf("%q: no error", dirs)
		}
	}
}
