package harness_test

import (
	"errors"
	"strings"
	"testing"

	"attnlab/harness"
	"attnlab/harness/run"
)

// A study whose kernel fails says so, whichever sample it is.
func TestStudyFails(t *testing.T) {
	for first := range 6 {
		n := 0
		w := &fakeWorker{sample: func(run.Point, int) (harness.Sample, error) {
			if n++; n > first {
				return harness.Sample{}, errors.New("lost its head")
			}
			return steady(1e6), nil
		}}
		at := point("honest", 8)
		ab := &harness.AB{Sides: [2]harness.Worker{w, w}, Lab: badLab(), Cells: [][2]run.Point{{at, at}}, Effect: 0.02, Alpha: 0.05}
		if _, err := ab.Study(t.Context(), never, 2); err == nil || !strings.Contains(err.Error(), at.Name()) || !strings.Contains(err.Error(), "lost its head") {
			t.Errorf("after %d samples: %v", first, err)
		}
	}
}
