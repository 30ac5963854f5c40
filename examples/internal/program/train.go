package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"attnlab/examples/internal/picture"
	"attnlab/nn"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

// checkpointFile holds the state that a training resumes from.
const checkpointFile = "checkpoint"

// Train trains until the given number of steps is done. A resumed run starts at its checkpoint.
// Train saves a checkpoint after every r.Every steps and at the end, and then draws the losses. If
// the context is cancelled, it saves and draws what is done and returns [ErrInterrupted] with the
// command that resumes.
func (r *Run) Train(ctx context.Context, t *nn.Trainer, steps int64) error {
	if r.Resume {
		// A run that was interrupted before its first checkpoint starts again.
		if err := t.Load(r.Path(checkpointFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	tell, end := Progress(r.progress, "steps", t.Done(), steps)
	saved, kept := t.Done(), true
	for t.Done() < steps && ctx.Err() == nil {
		if err := t.Step(); err != nil {
			end()
			return err
		}
		kept = false
		if t.Done()-saved >= r.Every {
			if err := t.Save(r.Path(checkpointFile)); err != nil {
				end()
				return err
			}
			saved, kept = t.Done(), true
		}
		tell(t.Done(), fmt.Sprintf("loss %.4f", t.Losses[len(t.Losses)-1]))
	}
	end()
	if !kept {
		if err := t.Save(r.Path(checkpointFile)); err != nil {
			return err
		}
	}
	if err := r.draw(t.Losses); err != nil {
		return err
	}
	if t.Done() < steps {
		return fmt.Errorf("%w after %d of %d steps; to resume: go run ./examples/%s -resume -o %s", ErrInterrupted, t.Done(), steps, r.name, r.Dir)
	}
	return nil
}

// draw draws the loss of each step, and the moving average.
func (r *Run) draw(losses []float64) error {
	if len(losses) == 0 {
		return nil
	}
	const window = 25
	each, mean := picture.Curve{Name: "each step", Thin: true}, picture.Curve{Name: fmt.Sprintf("mean of %d", window), Thin: true}
	sum := 0.0
	for i, loss := range losses {
		if sum += loss; i >= window {
			sum -= losses[i-window]
		}
		each.X, each.Y = append(each.X, float64(i)), append(each.Y, loss)
		mean.X, mean.Y = append(mean.X, float64(i)), append(mean.Y, sum/float64(min(i+1, window)))
	}
	c := picture.Chart{Title: "Loss of " + r.name, X: "step", Y: "nats", Curves: []picture.Curve{each, mean}}
	for _, l := range r.Levels {
		c.Curves = append(c.Curves, picture.Curve{Name: l.Name, X: []float64{0, float64(len(losses))}, Y: []float64{l.Y, l.Y}, Dashed: true, Thin: true})
	}
	p, err := c.Plot()
	if err != nil {
		return err
	}
	return picture.Save(r.Path("loss"), 17*vg.Centimeter, 10*vg.Centimeter, [][]*plot.Plot{{p}})
}

// Progress returns a function that reports how much is done, and one that ends the report. On a
// terminal it is a progress bar; elsewhere it is a line for each tenth.
func Progress(to io.Writer, what string, done, all int64) (tell func(done int64, about string), end func()) {
	if f, ok := to.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		bar := progressbar.NewOptions64(
			all, progressbar.OptionSetWriter(to), progressbar.OptionSetWidth(20), progressbar.OptionShowCount(), progressbar.OptionClearOnFinish(),
			progressbar.OptionThrottle(100*time.Millisecond),
		)
		_ = bar.Set64(done)
		return func(done int64, about string) {
			bar.Describe(about)
			_ = bar.Set64(done)
		}, func() { _ = bar.Clear() }
	}
	tenth := 10 * done / max(all, 1)
	return func(done int64, about string) {
		if now := 10 * done / max(all, 1); now > tenth {
			tenth = now
			fmt.Fprintf(to, "%d of %d %s: %s\n", done, all, what, about)
		}
	}, func() {}
}
