package study_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"attnlab/harness"
	"attnlab/harness/ab"
	"attnlab/harness/harnesstest"
	"attnlab/harness/run"
	"attnlab/harness/study"
)

// same returns a comparison of a cell with itself.
func same(w harness.Worker) *ab.Comparison {
	at := harnesstest.Point("honest", 8)
	side := func() *harness.Recorder { return &harness.Recorder{Workload: harnesstest.Workload, Worker: w} }
	return &ab.Comparison{Sides: [2]*harness.Recorder{side(), side()}, Cells: [][2]run.Point{{at, at}}, Effect: 0.02, Alpha: 0.05}
}

// TestStudy checks that a study tells a quiet machine from a noisy one, and that one that is
// stopped at once has no rounds.
func TestStudy(t *testing.T) {
	if testing.Short() {
		t.Skip("a study takes hundreds of comparisons")
	}
	of := func(noise float64) study.Result {
		r := rand.New(rand.NewPCG(4, 4))
		w := &harnesstest.Worker{OnSample: func(run.Point, int) (harness.Sample, error) {
			return harnesstest.Steady(time.Duration(1e6 * math.Exp(noise*r.ExpFloat64()))), nil
		}}
		s, err := study.Run(t.Context(), nil, same(w), 40)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	quiet, loud := of(0.005), of(0.2)
	if quiet.Rounds != 40 || quiet.FalseAlarms > 0.02 || quiet.Floor > 0.005 || !(quiet.Smallest > 0 && quiet.Smallest <= 0.03) {
		t.Errorf("a quiet machine: %+v", quiet)
	}
	if !(loud.Floor > 2*quiet.Floor) || !(loud.Spread > 10*quiet.Spread) || loud.Smallest != 0 && loud.Smallest < 0.05 {
		t.Errorf("a noisy machine: %+v, a quiet one: %+v", loud, quiet)
	}
	stop := make(chan struct{})
	close(stop)
	if s, err := study.Run(t.Context(), stop, same(new(harnesstest.Worker)), 40); s.Rounds != 0 || err != nil {
		t.Errorf("stopped at once: %+v, %v", s, err)
	}
}

// TestStudyFails checks that a study returns the failure of its kernel, whichever sample it is.
func TestStudyFails(t *testing.T) {
	for first := range 6 {
		n := 0
		w := &harnesstest.Worker{OnSample: func(run.Point, int) (harness.Sample, error) {
			if n++; n > first {
				return harness.Sample{}, errors.New("lost its head")
			}
			return harnesstest.Steady(1e6), nil
		}}
		c := same(w)
		if _, err := study.Run(t.Context(), nil, c, 2); err == nil || !strings.Contains(err.Error(), c.Cells[0][0].Name()) || !strings.Contains(err.Error(), "lost its head") {
			t.Errorf("after %d samples: %v", first, err)
		}
	}
}
