package compare

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/perf/benchfmt"

	"attnlab/harness/run"
)

// A Source is one side of a comparison: the samples of a run.
type Source struct {
	Path     string
	Results  []*benchfmt.Result
	Units    benchfmt.UnitMetadataMap
	Failed   map[string]string    // points without a number, and why
	Plans    map[string]*run.Plan // of the points of a run folder, by name
	Warnings []string
}

// Read reads the journal of a run folder, or a file in the Go benchmark format.
func Read(path string) (*Source, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return readFile(path)
	}
	if _, err := os.Stat(filepath.Join(path, run.JournalFile)); errors.Is(err, fs.ErrNotExist) {
		if bench := filepath.Join(path, run.BenchFile); fileExists(bench) {
			return readFile(bench)
		}
	}
	r, err := run.Load(path)
	if err != nil {
		return nil, err
	}
	if !r.Complete() && !slices.ContainsFunc(r.Cells, func(c *run.Cell) bool { return len(c.Visits) > 0 }) {
		return nil, fmt.Errorf("%s: the run was ended before its first sample: resume it, then compare", path)
	}
	var b bytes.Buffer
	if err := r.WriteBench(&b); err != nil {
		return nil, err
	}
	s, err := parse(path, b.Bytes())
	if err != nil {
		return nil, err
	}
	s.Warnings = append(s.Warnings, r.Warnings...)
	if !r.Complete() {
		s.Warnings = append(s.Warnings, path+": the run is not complete")
	}
	for _, c := range r.Cells {
		s.Plans[c.Point.Name()] = &c.Plan
	}
	for _, w := range r.Rows() {
		if w.Status == run.Failed {
			s.Failed[w.Name()] = w.Note
		}
	}
	return s, nil
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func readFile(path string) (*Source, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parse(path, data)
}

func parse(path string, data []byte) (*Source, error) {
	s := &Source{Path: path, Failed: map[string]string{}, Plans: map[string]*run.Plan{}}
	in := benchfmt.NewReader(bytes.NewReader(data), path)
	for in.Scan() {
		switch rec := in.Result().(type) {
		case *benchfmt.SyntaxError:
			s.Warnings = append(s.Warnings, rec.Error())
		case *benchfmt.Result:
			res := rec.Clone()
			// go test appends GOMAXPROCS to the name; a point names its threads itself.
			if p, err := run.ParseName(res.Name.String()); err == nil {
				res.Name = benchfmt.Name(p.Name())
			}
			s.Results = append(s.Results, res)
		}
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	if len(s.Results) == 0 {
		return nil, fmt.Errorf("%s: no benchmark results in it", path)
	}
	s.Units = in.Units()
	return s, nil
}
