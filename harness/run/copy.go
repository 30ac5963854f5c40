package run

import (
	"fmt"
	"os"
	"path/filepath"
)

// Copy makes dir hold this run: its journal and run.json, of which the rest of a folder is made.
// What dir held of another run goes; at every moment it reads as that run, as none, or as this one.
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
	// Without run.json a folder is not a run: it goes first and comes last.
	old := []string{MetaFile, BenchFile, CSVFile}
	if _, err := os.Stat(filepath.Join(dir, JournalFile)); err == nil { // in a folder without a run, plots are somebody else's
		old = append(old, HTMLFile, ReportFile, PlotsDir, ProfilesDir)
	}
	for _, name := range old {
		steps = append(steps, func() error { return os.RemoveAll(filepath.Join(dir, name)) })
	}
	for _, name := range []string{JournalFile, MetaFile} {
		data, err := os.ReadFile(filepath.Join(r.Dir, name))
		if err != nil {
			return err
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
