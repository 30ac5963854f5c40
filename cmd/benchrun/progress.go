package main

import (
	"io"
	"os"

	"attnlab/harness"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// newProgress shows how far a sweep has come on a terminal, and nothing elsewhere. It draws only when it is told something, which is
// between measurements.
func newProgress(w io.Writer) (tell func(harness.Progress), done func()) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil, func() {}
	}
	bar := progressbar.NewOptions(
		1, progressbar.OptionSetWriter(w), progressbar.OptionSetWidth(30), progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish(), progressbar.OptionThrottle(0),
	)
	return func(p harness.Progress) {
		bar.Describe(p.Phase)
		bar.ChangeMax(max(p.Total, 1))
		_ = bar.Set(min(p.Done, max(p.Total, 1)-1)) // a full bar would end itself while the estimate still grows
	}, func() { _ = bar.Finish() }
}
