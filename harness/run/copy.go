package run

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// Copy copies the run to dir: its journal and run.json, and the rows of the journal as sweep.csv. A
// run that dir held before is removed. At every moment dir reads as the old run, as no run, or as
// this one.
func (r *Run) Copy(dir string) (err error) {
	if err := makeFolder(dir); err != nil {
		return fmt.Errorf("run folder: %w", err)
	}
	from, err := os.Stat(r.Dir)
	if err != nil {
		return fmt.Errorf("run folder: %w", err)
	}
	if to, err := os.Stat(dir); err != nil || os.SameFile(from, to) {
		return fmt.Errorf("%s: a run is not copied onto itself", dir)
	}
	var steps []func() error
	var staged []string
	defer func() {
		if err != nil {
			err = fmt.Errorf("run folder: %w", err)
			for _, name := range staged {
				os.Remove(name)
			}
		}
	}()
	// A folder without run.json is not a run, so run.json is removed first and written last.
	old := []string{MetaFile, BenchFile, CSVFile}
	// Plots in a folder without a run belong to another program.
	if _, err := os.Stat(filepath.Join(dir, JournalFile)); err == nil {
		old = append(old, HTMLFile, ReportFile, PlotsDir, ProfilesDir)
	}
	for _, name := range old {
		steps = append(steps, func() error { return os.RemoveAll(filepath.Join(dir, name)) })
	}
	var rows bytes.Buffer
	if err := WriteCSV(&rows, r.Rows()); err != nil {
		return err
	}
	for _, name := range []string{JournalFile, CSVFile, MetaFile} {
		data := rows.Bytes()
		if name != CSVFile {
			if data, err = os.ReadFile(filepath.Join(r.Dir, name)); err != nil {
				return err
			}
		}
		path := filepath.Join(dir, name)
		beside, err := stage(path, data)
		if err != nil {
			return err
		}
		staged = append(staged, beside)
		steps = append(steps, func() error { return os.Rename(beside, path) })
	}
	steps = append(steps, func() error { return syncFolder(dir) })
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
