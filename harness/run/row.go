package run

import (
	"fmt"
	"math"

	"attnlab/harness/stats"
)

// Statuses of a row.
const (
	OK      = "ok"
	Skipped = "skipped"
	Failed  = "failed"
)

// A Row is what a run found out about one point: a line of sweep.csv. Numbers that were not
// measured are NaN.
type Row struct {
	Point
	Status, Note string

	Samples                    float64
	Ns, NsLo, NsHi, NsMin      float64 // wall time of one call: median, its interval, least
	Flop, GFlops               float64 // of one call; a second, by the median
	PeakGFlops                 float64 // what the multiply-add probe reached: median over samples
	Peak, PeakLo, PeakHi       float64 // median over samples of each one's rate over its own probes, and its interval
	Bytes, GBps, Bandwidth     float64 // of one call; a second, by the median; median over samples of the rate over the read probe's
	Scratch, RSS               float64 // bytes
	Alloc, Allocs              float64 // bytes and objects a call
	Err                        float64 // worst error over tolerance
	Dropped                    float64 // samples left out of Peak or Bandwidth: the probes around them disagree, or somebody else ran on the same core
	Tokens, AttnShare, MMShare float64 // of a layer: rows a second, by the median; medians over samples of the parts of the time in attention and in products

	// No columns: the interval of Bandwidth; of a layer, as Peak, of the operations and the time of
	// the attention in it, which Note says.
	BandwidthLo, BandwidthHi, AttnPeak float64
}

// unknown is a number that was not measured.
var unknown = math.NaN()

// Known reports whether a number of a row was measured.
func Known(x float64) bool { return !math.IsNaN(x) }

// Rows reduces the journal: one row a point, in the order planned.
func (r *Run) Rows() []Row {
	rows := make([]Row, len(r.Cells))
	for i, c := range r.Cells {
		rows[i] = c.Row()
	}
	return rows
}

// Row reduces one point's journal.
func (c *Cell) Row() Row {
	w := Row{
		Point: c.Point, Status: OK, Flop: float64(c.Flop), Bytes: float64(c.Bytes),
		Samples: unknown, Ns: unknown, NsLo: unknown, NsHi: unknown, NsMin: unknown, GFlops: unknown, PeakGFlops: unknown,
		Peak: unknown, PeakLo: unknown, PeakHi: unknown, GBps: unknown, Bandwidth: unknown, Scratch: unknown, RSS: unknown,
		Alloc: unknown, Allocs: unknown, Err: unknown, Dropped: unknown, Tokens: unknown, AttnShare: unknown, MMShare: unknown,
		BandwidthLo: unknown, BandwidthHi: unknown, AttnPeak: unknown,
	}
	if m := c.Memory; m != nil {
		w.Scratch, w.RSS, w.Alloc, w.Allocs = count(m.Scratch), count(m.PeakRSS), count(m.Alloc), count(m.Allocs)
	}
	if c.Verified != nil {
		w.Err = float64(c.Verified.Ratio)
	}
	switch {
	case c.Failed != "":
		w.Status, w.Note = Failed, c.Failed
	case c.Verified != nil && !(c.Verified.Ratio <= 1):
		w.Status, w.Note = Failed, fmt.Sprintf("wrong answer: err/tol %.3g at %s", float64(c.Verified.Ratio), c.Verified.Where)
	case c.Skipped != "":
		w.Status, w.Note = Skipped, c.Skipped
	case len(c.Visits) == 0:
		w.Status, w.Note = Skipped, "not measured: the run ended before its first sample"
	}
	if len(c.Visits) > 0 && w.Status != Failed { // what fails has no speed
		c.reduceVisits(&w)
	}
	return w
}

func count(n *int64) float64 {
	if n == nil {
		return unknown
	}
	return float64(*n)
}

func (c *Cell) reduceVisits(w *Row) {
	var ns, probe []float64
	probed, shared := 0, false
	for i := range c.Visits {
		v := &c.Visits[i]
		ns = append(ns, v.Nanoseconds())
		shared = shared || v.Shared
		if _, ok := c.sample(v); !ok {
			continue
		}
		probed++
		if v.Unit == ProbeFlop {
			probe = append(probe, v.probe()/1e9)
		}
	}
	t := stats.Summarise(ns)
	w.Samples, w.Dropped = float64(t.N), float64(t.N-c.Accepted())
	w.Ns, w.NsLo, w.NsHi, w.NsMin = t.Median, finite(t.Lo), finite(t.Hi), t.Min
	w.GFlops, w.GBps = w.Flop/t.Median, w.Bytes/t.Median
	w.PeakGFlops = stats.Summarise(probe).Median
	p := stats.Summarise(c.shares(ProbeFlop))
	w.Peak, w.PeakLo, w.PeakHi = p.Median, finite(p.Lo), finite(p.Hi)
	b := stats.Summarise(c.shares(ProbeBytes))
	w.Bandwidth, w.BandwidthLo, w.BandwidthHi = b.Median, finite(b.Lo), finite(b.Hi)
	if w.Status == OK && probed > 0 && c.Accepted() == 0 {
		what := "the machine's speed moved"
		if shared {
			what += " or somebody else ran on the same core"
		}
		w.Note = what + " during each of the samples: no share of its peak; --wait 1s waits for better ones"
	}
	if c.Point.Layer != "" {
		c.reduceLayer(w)
	}
}

// reduceLayer is what a row of a layer has besides.
func (c *Cell) reduceLayer(w *Row) {
	var attention, products, peak []float64
	for i := range c.Visits {
		v := &c.Visits[i]
		attention = append(attention, float64(v.Attention)/float64(v.Wall))
		products = append(products, float64(v.Products)/float64(v.Wall))
		if share, ok := c.attentionPeak(v); ok && !v.Dropped {
			peak = append(peak, share)
		}
	}
	w.Tokens = float64(c.Point.Tokens()) / w.Ns * 1e9
	w.AttnShare, w.MMShare = stats.Summarise(attention).Median, stats.Summarise(products).Median
	w.AttnPeak = stats.Summarise(peak).Median
	if w.Note == "" && Known(w.AttnPeak) {
		w.Note = fmt.Sprintf("the attention in the layer runs at %.1f %% of the peak", 100*w.AttnPeak)
	}
}

// attentionPeak is the rate of the attention in one sample of a layer over that of its probes; ok
// is false where it has none. Its part of the time is one of wall time, as its clock tells it; the
// time is that which the sample is judged by.
func (c *Cell) attentionPeak(v *Visit) (share float64, ok bool) {
	if v.Unit != ProbeFlop || v.Attention == 0 || !(v.Before > 0 && v.After > 0) {
		return 0, false
	}
	n, err := c.Point.attention()
	if err != nil {
		return 0, false
	}
	took := c.judged(v) * float64(v.Attention) / float64(v.Wall) * 1e-9
	return float64(n.Flop) * float64(v.Calls) / took / v.probe(), true
}

// finite turns the infinite end of an interval that a small sample does not have into an unknown
// number.
func finite(x float64) float64 {
	if math.IsInf(x, 0) {
		return unknown
	}
	return x
}

// Nanoseconds is the wall time of one call.
func (v *Visit) Nanoseconds() float64 { return float64(v.Wall) / float64(v.Calls) }

func (v *Visit) probe() float64 { return (v.Before + v.After) / 2 }

// A Sample is one visit as a rate, beside that of the probes around it, in the same unit.
type Sample struct {
	Rate, Probe float64
	Dropped     bool
}

// Share is the sample's rate over its probes'.
func (s Sample) Share() float64 { return s.Rate / s.Probe }

// Samples are those visits, in the order taken, that have probes of this unit. Row.Peak and
// Row.Bandwidth are medians over the shares of those that are not dropped.
func (c *Cell) Samples(unit string) []Sample {
	var samples []Sample
	for i := range c.Visits {
		if s, ok := c.sample(&c.Visits[i]); ok && c.Visits[i].Unit == unit {
			samples = append(samples, s)
		}
	}
	return samples
}

// Accepted is the number of samples that are not dropped.
func (c *Cell) Accepted() int {
	n := 0
	for _, v := range c.Visits {
		if !v.Dropped {
			n++
		}
	}
	return n
}

func (c *Cell) shares(unit string) []float64 {
	var shares []float64
	for _, s := range c.Samples(unit) {
		if !s.Dropped {
			shares = append(shares, s.Share())
		}
	}
	return shares
}

// sample is a visit's rate and the mean of its two probes; ok is false where it has none. One
// thread is judged in its own CPU time, which a busy neighbour does not lengthen; several threads
// are judged in wall time, because waiting for each other is their own doing.
func (c *Cell) sample(v *Visit) (s Sample, ok bool) {
	if !(v.Before > 0 && v.After > 0) {
		return s, false
	}
	work := float64(c.Flop)
	if v.Unit == ProbeBytes {
		work = float64(c.Bytes)
	}
	return Sample{work * float64(v.Calls) / (c.judged(v) * 1e-9), v.probe(), v.Dropped}, true
}

// judged is the time that a sample is judged by, in nanoseconds.
func (c *Cell) judged(v *Visit) float64 {
	if c.Point.Threads == 1 && v.CPU > 0 {
		return float64(v.CPU)
	}
	return float64(v.Wall)
}
