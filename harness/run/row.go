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

// A Stat is a median over samples and a confidence interval of it. Lo and Hi are NaN where there
// are too few samples for an interval.
type Stat struct{ Mid, Lo, Hi float64 }

// statOf returns the Stat of a sample.
func statOf(s stats.Summary) Stat { return Stat{s.Median, finite(s.Lo), finite(s.Hi)} }

// A Row is the result of a run at one point: a line of sweep.csv. Numbers that were not measured
// are NaN.
type Row struct {
	Point
	Status, Note string

	Samples float64
	// Dropped is the number of samples that PeakShare and BandwidthShare leave out. The probes
	// around them disagree, or another thread ran on the same core.
	Dropped float64

	Ns    Stat    // wall time of one call
	NsMin float64 // least wall time of one call

	Flop   float64 // operations of one call
	GFlops float64 // by the median time
	// PeakGFlops is the rate of the multiply-add probe, a median over samples. PeakShare is the
	// share of it that the kernel reaches: each sample's rate over that of its own probes.
	PeakGFlops float64
	PeakShare  Stat

	Bytes          float64 // memory that one call reads and writes
	GBps           float64 // by the median time
	BandwidthShare Stat    // as PeakShare, of the read probe's rate; its interval has no columns

	Scratch, RSS  float64 // bytes
	Alloc, Allocs float64 // bytes and objects that a call allocates
	Err           float64 // worst error over tolerance

	// Of a layer: rows a second by the median time, and shares of the time, medians over samples.
	Tokens, AttnShare, ProductShare float64
	// AttnPeakShare is PeakShare of the attention in a layer alone. It has no column; Note says it.
	AttnPeakShare float64
}

// unknown and unknownStat were not measured.
var (
	unknown     = math.NaN()
	unknownStat = Stat{unknown, unknown, unknown}
)

// Known reports whether a number of a row was measured.
func Known(x float64) bool { return !math.IsNaN(x) }

// Rows reduces the journal to one row for each point, in the order planned.
func (r *Run) Rows() []Row {
	rows := make([]Row, len(r.Cells))
	for i, c := range r.Cells {
		rows[i] = c.Row()
	}
	return rows
}

// Row reduces the journal of one point.
func (c *Cell) Row() Row {
	w := Row{
		Point: c.Point, Status: OK, Flop: float64(c.Flop), Bytes: float64(c.Bytes),
		Samples: unknown, Dropped: unknown, Ns: unknownStat, NsMin: unknown, GFlops: unknown, PeakGFlops: unknown, PeakShare: unknownStat,
		GBps: unknown, BandwidthShare: unknownStat, Scratch: unknown, RSS: unknown, Alloc: unknown, Allocs: unknown, Err: unknown,
		Tokens: unknown, AttnShare: unknown, ProductShare: unknown, AttnPeakShare: unknown,
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
	w.Ns, w.NsMin = statOf(t), t.Min
	w.GFlops, w.GBps = w.Flop/w.Ns.Mid, w.Bytes/w.Ns.Mid
	w.PeakGFlops = stats.Summarise(probe).Median
	w.PeakShare = statOf(stats.Summarise(c.shares(ProbeFlop)))
	w.BandwidthShare = statOf(stats.Summarise(c.shares(ProbeBytes)))
	if w.Status == OK && probed > 0 && c.Accepted() == 0 {
		what := "the machine's speed moved"
		if shared {
			what += " or another thread ran on the same core"
		}
		w.Note = what + " during each of the samples: no share of its peak; --wait 1s waits for better ones"
	}
	if c.Point.Layer != "" {
		c.reduceLayer(w)
	}
}

// reduceLayer sets what only the row of a layer has.
func (c *Cell) reduceLayer(w *Row) {
	var attention, products, peak []float64
	for i := range c.Visits {
		v := &c.Visits[i]
		attention = append(attention, float64(v.Attention)/float64(v.Wall))
		products = append(products, float64(v.Products)/float64(v.Wall))
		if share, ok := c.attentionShare(v); ok && !v.Dropped {
			peak = append(peak, share)
		}
	}
	w.Tokens = float64(c.Point.Tokens()) / w.Ns.Mid * 1e9
	w.AttnShare, w.ProductShare = stats.Summarise(attention).Median, stats.Summarise(products).Median
	w.AttnPeakShare = stats.Summarise(peak).Median
	if w.Note == "" && Known(w.AttnPeakShare) {
		w.Note = fmt.Sprintf("the attention in the layer runs at %.1f %% of the peak", 100*w.AttnPeakShare)
	}
}

// attentionShare returns the rate of the attention in one sample of a layer over that of its
// probes; ok is false where it has none. The attention's share of the wall time is taken of the
// time that the sample is judged by.
func (c *Cell) attentionShare(v *Visit) (share float64, ok bool) {
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

// finite returns an unknown number for an infinite one, which stands for the interval that a small
// sample does not have.
func finite(x float64) float64 {
	if math.IsInf(x, 0) {
		return unknown
	}
	return x
}

// Nanoseconds returns the wall time of one call.
func (v *Visit) Nanoseconds() float64 { return float64(v.Wall) / float64(v.Calls) }

// probe returns the mean of the two probes.
func (v *Visit) probe() float64 { return (v.Before + v.After) / 2 }

// A Sample is the rate of one visit and that of the probes around it, in the same unit.
type Sample struct {
	Rate, Probe float64
	Dropped     bool
}

// Share returns the sample's rate over that of its probes.
func (s Sample) Share() float64 { return s.Rate / s.Probe }

// Samples returns the visits with probes of a unit, in the order taken. Row.PeakShare and
// Row.BandwidthShare are medians over the shares of the samples that are not dropped.
func (c *Cell) Samples(unit string) []Sample {
	var samples []Sample
	for i := range c.Visits {
		if s, ok := c.sample(&c.Visits[i]); ok && c.Visits[i].Unit == unit {
			samples = append(samples, s)
		}
	}
	return samples
}

// Accepted returns the number of samples that are not dropped.
func (c *Cell) Accepted() int {
	n := 0
	for _, v := range c.Visits {
		if !v.Dropped {
			n++
		}
	}
	return n
}

// shares returns the shares of the samples that are not dropped.
func (c *Cell) shares(unit string) []float64 {
	var shares []float64
	for _, s := range c.Samples(unit) {
		if !s.Dropped {
			shares = append(shares, s.Share())
		}
	}
	return shares
}

// sample returns the rate of a visit and the mean of its two probes; ok is false where it has none.
// One thread is judged in its own CPU time, which a busy neighbour does not lengthen. Several
// threads are judged in wall time, since it is their own doing if they wait for each other.
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

// judged returns the time that a sample is judged by, in nanoseconds.
func (c *Cell) judged(v *Visit) float64 {
	if c.Point.Threads == 1 && v.CPU > 0 {
		return float64(v.CPU)
	}
	return float64(v.Wall)
}
