// Package runtest makes run folders with known numbers, for tests of programs that read run
// folders.
package runtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"attnlab/harness/run"
)

// A Model describes a run. The zero Model is the plain case.
type Model struct {
	Samples int                     // of each point; 0 is 10
	Masks   []string                // nil is full and causal
	Passes  []string                // nil is forward
	Dims    []int                   // nil is 64
	Threads []int                   // nil is 1
	Seed    uint64                  // of the noise
	Slower  func(run.Point) float64 // factor on the time of a point; nil is 1
	Drop    func(run.Point) bool    // reports whether the probes of a point's samples disagree
	Meta    func(*run.Meta)         // changes run.json
	Edit    func(*run.Record)       // changes a record before it is written
}

// A rung is one kernel, with its rate and its scratch memory in the model.
type rung struct {
	kernel, isa string
	rate        float64 // FLOP/s
	scratch     func(n int64) int64
}

var rungs = [...]rung{
	{"naive", "go", 1.6e9, func(n int64) int64 { return 4 * n * n }},
	{"tiled", "blas", 9e9, func(n int64) int64 { return 4*n*n + 4096 }},
	{"tiled", "go", 4e9, func(n int64) int64 { return 4*n*n + 4096 }},
	{"flash", "go", 5e9, func(int64) int64 { return 25600 }},
	{"linear", "go", 3e9, func(int64) int64 { return 16640 }},
}

// Machine is the machine in run.json.
var Machine = run.Fingerprint{
	CPU: "Model CPU @ 2.00GHz", Cores: 2, CPUs: 2, ISA: []string{"go"}, RAM: 8 << 30, OS: "linux", Arch: "amd64", Kernel: "6.1", Go: "go1.26",
	Caches: []run.Cache{{Name: "L1d", Bytes: 48 << 10}, {Name: "L2", Bytes: 2 << 20}},
}

// peak is the rate of the probes in the model, in FLOP/s.
const peak = 2e10

// Make writes a run of five rungs at four lengths for each problem, and calls Run.Write. At the
// greatest length naive is skipped, and tiled/blas fails under a causal mask.
func Make(t testing.TB, dir string, m Model) *run.Run {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	if m.Samples == 0 {
		m.Samples = 10
	}
	if m.Masks == nil {
		m.Masks = []string{"full", "causal"}
	}
	if m.Passes == nil {
		m.Passes = []string{"forward"}
	}
	if m.Dims == nil {
		m.Dims = []int{64}
	}
	if m.Threads == nil {
		m.Threads = []int{1}
	}
	if m.Slower == nil {
		m.Slower = func(run.Point) float64 { return 1 }
	}
	noise := rand.New(rand.NewPCG(m.Seed, 1))
	meta := run.Meta{
		Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Commit: run.Commit{Revision: "0123456789abcdef0123"}, Seed: m.Seed, Machine: Machine,
		Command: []string{"benchrun", "sweep"}, Flags: map[string]string{"samples": "10"}, Noise: map[string]string{"steal": "0.1 %"},
	}
	if m.Meta != nil {
		m.Meta(&meta)
	}
	j, err := run.Create(dir, meta)
	must(err)
	must(j.Close())
	var records []run.Record
	write := func(rec run.Record) {
		if m.Edit != nil {
			m.Edit(&rec)
		}
		if rec.Plan != nil {
			rec.Plan.Group, rec.Plan.Path = rec.Plan.Point.Group(), meta.Paths[rec.Plan.Point.Contender()]
		}
		records = append(records, rec)
	}
	for _, g := range m.problems() {
		for _, seq := range []int{256, 512, 1024, 2048} {
			for _, r := range rungs {
				p := g
				p.Kernel, p.ISA, p.SeqKV = r.kernel, r.isa, seq
				if r.kernel == "linear" {
					p.Op = "linear"
				}
				p = p.WithDefaults()
				q, err := p.Problem()
				must(err)
				n := q.Count(nil)
				write(run.Record{Plan: &run.Plan{Point: p, Flop: n.Flop, Bytes: n.Bytes}})
				if r.kernel == "naive" && seq == 2048 {
					write(run.Record{Skip: &run.Skip{Point: p.Name(), Reason: "needs 4.3 GB, limit 2 GB"}})
					continue
				}
				write(run.Record{Verify: &run.Verify{Point: p.Name(), Ratio: 0.1, Rows: 8, Where: "Out[0 0 0 0]"}})
				if r.isa == "blas" && p.Mask == "causal" && seq == 2048 {
					write(run.Record{Fail: &run.Fail{Point: p.Name(), Reason: "the worker died: signal: killed"}})
					continue
				}
				scratch, zero := r.scratch(int64(seq)), int64(0)
				rss := scratch + 1<<17
				write(run.Record{Memory: &run.Memory{Point: p.Name(), Scratch: &scratch, PeakRSS: &rss, Alloc: &zero, Allocs: &zero}})
				for round := range m.Samples {
					ns := float64(n.Flop) / r.rate / float64(p.Threads) * 1e9 * m.Slower(p) * (1 + 0.004*math.Abs(noise.NormFloat64()))
					calls := max(1, int(5e6/ns))
					v := run.Visit{Point: p.Name(), Round: round, Calls: calls, Wall: int64(ns * float64(calls)), CPU: int64(ns * float64(calls) * 0.99)}
					v.Before, v.After, v.Unit = peak*float64(p.Threads), peak*0.995*float64(p.Threads), run.ProbeFlop
					if m.Drop != nil && m.Drop(p) {
						v.After, v.Dropped = v.Before*0.9, true
					}
					write(run.Record{Visit: &v})
				}
			}
		}
	}
	write(run.Record{End: &run.End{Reason: "every interval is narrower than 2 %", Complete: true, Time: time.Date(2026, 1, 2, 3, 5, 5, 0, time.UTC)}})
	must(run.WriteJournal(dir, records))
	r, err := run.Load(dir)
	must(err)
	must(r.Write())
	return r
}

// Edit changes the records of an existing run, and computes their sums again.
func Edit(t testing.TB, dir string, edit func(*run.Record)) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, run.JournalFile))
	if err != nil {
		t.Fatal(err)
	}
	var records []run.Record
	for d := json.NewDecoder(bytes.NewReader(data)); ; {
		var rec run.Record
		if err := d.Decode(&rec); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		edit(&rec)
		records = append(records, rec)
	}
	if err := run.WriteJournal(dir, records); err != nil {
		t.Fatal(err)
	}
}

// problems returns the points of a model, without kernels and lengths.
func (m *Model) problems() []run.Point {
	var list []run.Point
	for _, pass := range m.Passes {
		for _, mask := range m.Masks {
			for _, dim := range m.Dims {
				for _, threads := range m.Threads {
					list = append(list, run.Point{Pass: pass, Mask: mask, Dim: dim, Threads: threads})
				}
			}
		}
	}
	return list
}
