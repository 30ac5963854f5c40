package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"attnlab/harness"
	"attnlab/harness/run"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// newProgress shows how far a sweep has come on a terminal, and nothing elsewhere. It draws only
// when it is told something, which is between measurements.
func newProgress(w io.Writer) (tell func(harness.Progress), done func()) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil, func() {}
	}
	bar := progressbar.NewOptions(
		1, progressbar.OptionSetWriter(w), progressbar.OptionSetWidth(10), progressbar.OptionShowCount(), progressbar.OptionSetElapsedTime(false),
		progressbar.OptionSetPredictTime(false), progressbar.OptionClearOnFinish(), progressbar.OptionThrottle(0),
	)
	return func(p harness.Progress) {
		bar.Describe(describe(p))
		bar.ChangeMax(max(p.Total, 1))
		_ = bar.Set(min(p.Done, max(p.Total, 1)-1)) // a full bar would end itself while the estimate still grows
	}, func() { _ = bar.Finish() }
}

// describe is what is going on, at which point, what its interval is by now, and how long it takes
// yet: short enough to stand beside a bar.
func describe(p harness.Progress) string {
	s := fmt.Sprintf("%s: %s", p.Phase, brief(p.Point))
	if !math.IsInf(p.Width, 0) {
		s += fmt.Sprintf(" ± %.1f %%", 100*p.Width)
	}
	if p.Left >= 0 {
		s += fmt.Sprintf(", %v left", p.Left.Round(time.Second))
	}
	return s
}

// brief names a point by what differs most in a grid.
func brief(p run.Point) string {
	length := fmt.Sprint(p.SeqKV)
	if p.SeqQ != p.SeqKV {
		length = fmt.Sprintf("%dx%d", p.SeqQ, p.SeqKV)
	}
	return fmt.Sprintf("%s/%s %s %s", p.Kernel, p.ISA, p.Mask, length)
}
