package survey

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"attnlab/harness"
	"attnlab/harness/machine"
	"attnlab/harness/run"
	"attnlab/harness/study"
)

// A Diagnosis is what a doctor finds out about this machine, and what later runs know of it.
type Diagnosis struct {
	Machine run.Fingerprint `json:"machine"`
	Time    time.Time       `json:"time"`
	Studies []study.Result  `json:"studies"`

	// Slots are the most instructions that were begun in a cycle, by the probe of each instruction
	// set.
	Slots map[string]float64 `json:"slots,omitempty"`
}

// diagnosisFile returns the path at which a diagnosis is kept.
func diagnosisFile() (string, error) {
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "attnlab", "doctor.json"), err
}

// Diagnosed returns the diagnosis that is kept for this machine, or an empty one if there is none.
// The machine has the instruction sets isas.
func Diagnosed(isas []string) (d Diagnosis, err error) {
	path, err := diagnosisFile()
	if err != nil {
		return d, nil // there is no cache folder
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	} else if err != nil {
		return d, err
	}
	if err := json.Unmarshal(b, &d); err != nil {
		return Diagnosis{}, fmt.Errorf("%s: %w; run benchrun doctor again", path, err)
	}
	if len(d.Machine.Differences(machine.Fingerprint(isas))) > 0 {
		return Diagnosis{}, nil
	}
	return d, nil
}

// Keep writes the diagnosis where Diagnosed finds it.
func (d *Diagnosis) Keep() error {
	path, err := diagnosisFile()
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(d, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return run.Replace(path, b)
}

// Floors returns the floor of points bound by arithmetic and that of points bound by memory, by the
// unit of their probe. It is nil if no study was made.
func (d *Diagnosis) Floors() map[string]float64 {
	var floors map[string]float64
	for _, s := range d.Studies {
		if floors == nil {
			floors = map[string]float64{}
		}
		unit := harness.ProbeUnit(s.Point)
		floors[unit] = max(floors[unit], s.Floor)
	}
	return floors
}

// Look measures how many instructions a cycle begins, and keeps the most. It is called several
// times: a look during which another thread used the core finds fewer.
func (d *Diagnosis) Look(s *Surveyor) {
	for _, v := range s.Sets {
		if v.Available {
			d.Slots[v.ISA] = max(d.Slots[v.ISA], s.Peak(v.Ops).Slots)
		}
	}
}
