package reports

import "strings"

// A definition says what a figure of a report is. docs/statistics.md has the formulas, and how
// often each figure is wrong.
type definition struct {
	ID, Term string
	Heads    []string // of the table columns that hold it
	Columns  []string // of sweep.csv that hold it
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
		"The 95 % confidence interval of a median, from order statistics; it takes six samples. Bands and whiskers of charts show it; ± is its farther end, as a share of the median.",
	},
	{
		"samples", "Samples, rounds",
		[]string{"samples", "rounds"},
		[]string{"samples", "dropped"},
		"How many times a point was timed, each time over as many calls as give a time that can be measured.",
	},
	{
		"rate", "GFLOP/s",
		[]string{"GFLOP/s"},
		[]string{"flop", "gflops"},
		"The mathematics of visible scores over the time of one call. What a mask hides counts neither as work nor as speed.",
	},
	{
		"peak", "Of peak",
		[]string{"of peak", "of the fastest peak"},
		[]string{"peak_gflops", "peak_frac"},
		"Each sample's rate over the mean of a multiply-add probe run just before and just after it on the same instruction set; the median of that. Samples whose two probes differ by more than 2 % are left out. The ladder divides all rates by the one fastest peak instead, so that its rungs compare.",
	},
	{
		"bandwidth", "GB/s, of bandwidth",
		[]string{"GB/s", "of bandwidth"},
		[]string{"bytes", "gbps", "bandwidth_frac"},
		"The bytes of a call's operands over its time, and that over what a read probe around each sample reached. Decoding is judged by it.",
	},
	{
		"intensity", "FLOP per byte", nil, nil,
		"The operations of a call over the bytes of its operands. On the roofline no cell can lie above the peak, nor, where there are few operations for a byte, above the bandwidth.",
	},
	{"scratch", "Scratch", []string{"scratch"}, []string{"scratch_bytes"}, "The memory that a plan holds besides its operands."},
	{
		"rss", "Peak RSS",
		[]string{"peak RSS"},
		[]string{"peak_rss_bytes"},
		"The most memory that a process of its own had resident while it ran the point, over what it had with the inputs in place; of a peer, while its own process made a call.",
	},
	{"allocs", "Allocs", []string{"allocs"}, []string{"alloc_bytes", "allocs"}, "The objects that one call allocates."},
	{
		"err", "Err/tol",
		[]string{"err/tol", "worst err/tol"},
		[]string{"err_ratio"},
		"The worst error against the float64 definition, in units of the tolerance that float32 is entitled to on that very data; up to 1 is right.",
	},
	{
		"tokens", "Tokens/s",
		[]string{"tokens/s"},
		[]string{"tokens_s"},
		"Of a layer: the rows that one call takes, of all sequences, over its time. GFLOP/s and the share of the peak count its matrix products and its attention.",
	},
	{
		"shares", "In attention, in products",
		[]string{"in attention", "in products"},
		[]string{"attn_share", "product_share"},
		"The parts of a layer's time that its attention and its matrix products take: medians over samples. The rest is what is done element by element. The note says which share of the peak the attention reaches in its part.",
	},
	{"slope", "Slope, n^x", []string{"slope", "slope of time in length"}, nil, "The exponent of time in length: the slope of the line through both logarithms."},
	{
		"fastest", "Fastest",
		[]string{"fastest", "against the next"},
		nil,
		"The kernel with the least time of one call. It is told apart from the next one where their intervals do not meet.",
	},
	{
		"cost", "What a feature costs",
		[]string{"speed"},
		nil,
		"The median, over the rounds that visited both points, of the ratio of their rates in visible pairs, each over its own probes; decode points are compared by time.",
	},
	{
		"noise", "Noise", nil, nil,
		"Half of the points have a time whose interval is narrower than that. Drift is how far a probe moved during the run; stolen is the time that the hypervisor gave to others, and interruptions are what a thread loses, before the run, that only looks at the clock.",
	},
}

// defined is the ID of what a table column holds, or empty.
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

// howToRead explains the figures of a report in Markdown.
func howToRead() string {
	var b strings.Builder
	for _, d := range definitions {
		b.WriteString("- **" + d.Term + "**: " + d.Text + "\n")
	}
	return b.String()
}
