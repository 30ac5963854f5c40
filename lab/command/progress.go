package command

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

// newProgress returns a function that shows the progress of a sweep, if w is a terminal. It draws
// only when it is called, between measurements.
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
		// A full bar would end itself, while the estimate still grows.
		_ = bar.Set(min(p.Done, max(p.Total, 1)-1))
	}, func() { _ = bar.Finish() }
}

// describe returns the phase, the point, the width of its interval and the time left, short enough
// to stand beside a bar.
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

// brief names a point by the keys that differ most in a grid.
func brief(p run.Point) string {
	length := fmt.Sprint(p.SeqKV)
	if p.SeqQ != p.SeqKV {
		length = fmt.Sprintf("%dx%d", p.SeqQ, p.SeqKV)
	}
	return fmt.Sprintf("%s/%s %s %s", p.Kernel, p.ISA, p.Mask, length)
}
