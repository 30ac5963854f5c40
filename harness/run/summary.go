package run

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Summary is what run.json and sweep.csv hold of a run: its rows without its samples.
type Summary struct {
	Meta Meta
	Rows []Row
}

// ReadSummary reads run.json and sweep.csv of a run folder. It needs no journal, so it also reads
// runs of which a repository keeps only these two files.
func ReadSummary(dir string) (s Summary, err error) {
	if s.Meta, err = readMeta(dir); err != nil {
		return s, err
	}
	path := filepath.Join(dir, CSVFile)
	f, err := os.Open(path)
	if err != nil {
		return s, fmt.Errorf("run folder: %w", err)
	}
	defer f.Close()
	if s.Rows, err = ReadCSV(f); err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// ReadCSV reads what WriteCSV of this or an earlier version of benchrun wrote. What has no column
// there has its default in a Point, and is NaN or empty in the rest of a Row.
func ReadCSV(r io.Reader) ([]Row, error) {
	in := csv.NewReader(r)
	header, err := in.Read()
	if err != nil {
		return nil, fmt.Errorf("the header: %w", err)
	}
	known := Columns()
	for i, name := range header {
		switch {
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("column %q is unknown, want some of %s: a later benchrun wrote it", name, strings.Join(known, ","))
		case slices.Contains(header[:i], name):
			return nil, fmt.Errorf("column %q is there twice", name)
		}
	}
	var rows []Row
	for {
		line, err := in.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		fields := map[string]string{}
		for i, name := range header {
			fields[name] = plainText(line[i])
		}
		row, err := parseRow(fields)
		if err != nil {
			return nil, fmt.Errorf("row %d: %w", len(rows)+1, err)
		}
		rows = append(rows, row)
	}
}

// parseRow reads the fields of one line of sweep.csv, by column.
func parseRow(fields map[string]string) (Row, error) {
	var p Point
	for i := range keyColumns {
		k := &keyColumns[i]
		text, ok := fields[k.Column]
		if !ok {
			continue
		}
		if err := k.Set(&p, text); err != nil {
			return Row{}, err
		}
	}
	row := (&Cell{Plan: Plan{Point: p.WithDefaults()}}).Row() // nothing is measured yet
	for i := range measures {
		m := &measures[i]
		text := fields[m.column]
		if m.text != nil {
			*m.text(&row) = text
			continue
		}
		x := unknown
		if text != "" {
			var err error
			if x, err = strconv.ParseFloat(text, 64); err != nil {
				return Row{}, fmt.Errorf("%s: %q is not a number", m.column, text)
			}
		}
		*m.number(&row) = x
	}
	return row, row.Point.Validate()
}

// plainText undoes noFormula.
func plainText(field string) string { return strings.TrimPrefix(field, "'") }
