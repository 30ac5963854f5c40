package reports

import "strings"

// A definition explains a figure of a report. docs/statistics.md has the formulas and error rates.
type definition struct {
	ID, Term string
	Heads    []string // the columns of tables that hold it
	Columns  []string // the columns of sweep.csv that hold it
	Text     string
}

var definitions = [...]definition{
	{
		"time", "Time of one call",
		[]string{"time", "time of one call"},
		[]string{"ns_median", "ns_min"},
		"The median of a point's samples. They are taken in rounds, and each round visits every point once in random order.",
	},
	{
		"interval", "Interval, ±",
		[]string{"from", "to"},
		[]string{"ns_lo", "ns_hi"},
		"The 95 % confidence interval of a median, from order statistics; it needs six samples. Charts show it as bands and whiskers; ± is its farther end, as a share of the median.",
	},
	{
		"samples", "Samples, rounds",
		[]string{"samples", "rounds"},
		[]string{"samples", "dropped"},
		"How many times a point was timed. Each sample is over as many calls as take at least 5 ms.",
	},
	{
		"rate", "GFLOP/s",
		[]string{"GFLOP/s"},
		[]string{"flop", "gflops"},
		"The operations on visible scores over the time of one call. Scores that a mask hides count neither as work nor as speed.",
	},
	{
		"peak", "Of peak",
		[]string{"of peak", "of the fastest peak"},
		[]string{"peak_gflops", "peak_frac"},
		"Each sample's rate over the mean rate of a multiply-add probe of the same instruction set, run just before and just after it; the median over samples. Samples whose two probes differ by more than 2 % are left out. The ladder divides all rates by the fastest peak instead, so that its rungs compare.",
	},
	{
		"bandwidth", "GB/s, of bandwidth",
		[]string{"GB/s", "of bandwidth"},
		[]string{"bytes", "gbps", "bandwidth_frac"},
		"The bytes of a call's operands over its time, and the median over samples of that rate over the rate of a read probe around each sample. It is the limit of decoding. A rule of linear attention updates a state instead, so its probe reads and writes one of the same size.",
	},
	{
		"intensity", "FLOP per byte", nil, nil,
		"The operations of a call over the bytes of its operands. On the roofline no point can be above the peak, nor, where there are few operations a byte, above the bandwidth.",
	},
	{"scratch", "Scratch", []string{"scratch"}, []string{"scratch_bytes"}, "The memory that a plan holds besides its operands."},
	{
		"rss", "Peak RSS",
		[]string{"peak RSS"},
		[]string{"peak_rss_bytes"},
		"The most memory that a process had resident while it ran the point, less what it had with the inputs in place. Of another program: what its process used during a call.",
	},
	{"allocs", "Allocs", []string{"allocs"}, []string{"alloc_bytes", "allocs"}, "The objects that one call allocates."},
	{
		"err", "Err/tol",
		[]string{"err/tol", "worst err/tol"},
		[]string{"err_ratio"},
		"The largest error against the float64 definition, over the error that float32 may leave on these inputs; up to 1 is right.",
	},
	{
		"tokens", "Tokens/s",
		[]string{"tokens/s"},
		[]string{"tokens_s"},
		"Of a layer: the rows of one call, of all sequences, over its time. GFLOP/s and the share of the peak count the layer's matrix products and its attention.",
	},
	{
		"shares", "In attention, in products",
		[]string{"in attention", "in products"},
		[]string{"attn_share", "product_share"},
		"The shares of a layer's time in its attention and in its matrix products: medians over samples. The rest is element-by-element work. The note gives the share of the peak that the attention reaches while it runs.",
	},
	{"slope", "Slope, n^x", []string{"slope", "slope of time in length"}, nil, "The exponent of time in length: the slope of the line through both logarithms."},
	{
		"fastest", "Fastest",
		[]string{"fastest", "against the next"},
		nil,
		"The kernel with the least time of one call. The lead over the next one is certain only where their intervals do not overlap.",
	},
	{
		"cost", "What a feature costs",
		[]string{"speed"},
		nil,
		"The median, over the rounds that measured both points, of the ratio of their rates in visible pairs, each over its own probes. Decode points are compared by time.",
	},
	{
		"noise", "Noise", nil, nil,
		"Half of the points have a time whose interval is narrower than this. Drift is how far a probe moved during the run. Stolen is the time that the hypervisor gave to other machines. Interruptions are the time that a thread that only reads the clock loses, measured before the run.",
	},
}

// defined returns the ID of a table column's definition, or an empty text.
func defined(head string) string {
	for i := range definitions {
		for _, h := range definitions[i].Heads {
			if h == head {
				return definitions[i].ID
			}
		}
	}
	return ""
}

// howToRead returns all definitions as Markdown.
func howToRead() string {
	var b strings.Builder
	for _, d := range definitions {
		b.WriteString("- **" + d.Term + "**: " + d.Text + "\n")
	}
	return b.String()
}
