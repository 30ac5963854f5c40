package run

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// keyColumns are the axes whose columns are in front in sweep.csv. The layer has its column among
// the measures, in front of its own.
var keyColumns = slices.DeleteFunc(slices.Clone(keys), func(a Axis) bool { return a.Column == "layer" })

// A measure is one column of sweep.csv after the key columns, and the field of a Row that it shows.
type measure struct {
	column string
	text   func(*Row) *string
	number func(*Row) *float64
}

var measures = [...]measure{
	{column: "status", text: func(w *Row) *string { return &w.Status }},
	{column: "note", text: func(w *Row) *string { return &w.Note }},
	{column: "samples", number: func(w *Row) *float64 { return &w.Samples }},
	{column: "ns_median", number: func(w *Row) *float64 { return &w.Ns.Mid }},
	{column: "ns_lo", number: func(w *Row) *float64 { return &w.Ns.Lo }},
	{column: "ns_hi", number: func(w *Row) *float64 { return &w.Ns.Hi }},
	{column: "ns_min", number: func(w *Row) *float64 { return &w.NsMin }},
	{column: "flop", number: func(w *Row) *float64 { return &w.Flop }},
	{column: "gflops", number: func(w *Row) *float64 { return &w.GFlops }},
	{column: "peak_gflops", number: func(w *Row) *float64 { return &w.PeakGFlops }},
	{column: "peak_frac", number: func(w *Row) *float64 { return &w.PeakShare.Mid }},
	{column: "peak_frac_lo", number: func(w *Row) *float64 { return &w.PeakShare.Lo }},
	{column: "peak_frac_hi", number: func(w *Row) *float64 { return &w.PeakShare.Hi }},
	{column: "bytes", number: func(w *Row) *float64 { return &w.Bytes }},
	{column: "gbps", number: func(w *Row) *float64 { return &w.GBps }},
	{column: "bandwidth_frac", number: func(w *Row) *float64 { return &w.BandwidthShare.Mid }},
	{column: "scratch_bytes", number: func(w *Row) *float64 { return &w.Scratch }},
	{column: "peak_rss_bytes", number: func(w *Row) *float64 { return &w.RSS }},
	{column: "alloc_bytes", number: func(w *Row) *float64 { return &w.Alloc }},
	{column: "allocs", number: func(w *Row) *float64 { return &w.Allocs }},
	{column: "err_ratio", number: func(w *Row) *float64 { return &w.Err }},
	{column: "dropped", number: func(w *Row) *float64 { return &w.Dropped }},
	{column: "layer", text: func(w *Row) *string { return &w.Point.Layer }},
	{column: "tokens_s", number: func(w *Row) *float64 { return &w.Tokens }},
	{column: "attn_share", number: func(w *Row) *float64 { return &w.AttnShare }},
	{column: "product_share", number: func(w *Row) *float64 { return &w.ProductShare }},
}

// Columns returns the columns of sweep.csv in their order.
func Columns() []string {
	var c []string
	for i := range keyColumns {
		c = append(c, keyColumns[i].Column)
	}
	for i := range measures {
		c = append(c, measures[i].column)
	}
	return c
}

// WriteCSV writes rows as sweep.csv: RFC 4180, with a header. A field is empty where nothing was
// measured. A text that a spreadsheet would take for a formula, or that begins with an apostrophe,
// gets an apostrophe in front.
func WriteCSV(w io.Writer, rows []Row) error {
	out := csv.NewWriter(w)
	out.UseCRLF = true
	if err := out.Write(Columns()); err != nil {
		return err
	}
	var line []string
	for i := range rows {
		line = line[:0]
		for k := range keyColumns {
			line = append(line, noFormula(keyColumns[k].Value(rows[i].Point)))
		}
		for m := range measures {
			line = append(line, measures[m].get(&rows[i]))
		}
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

func (m *measure) get(w *Row) string {
	if m.text != nil {
		return noFormula(*m.text(w))
	}
	x := *m.number(w)
	if math.IsNaN(x) {
		return ""
	}
	return strconv.FormatFloat(x, 'f', -1, 64)
}

// noFormula returns a text that spreadsheets show and do not evaluate. Some notes are what another
// program wrote, so they cannot be trusted.
func noFormula(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r\n'", rune(text[0])) {
		return "'" + text
	}
	return text
}

// Write rewrites the two files that are derived from the journal, bench.txt and sweep.csv.
func (r *Run) Write() error {
	var b bytes.Buffer
	if err := r.WriteBench(&b); err != nil {
		return err
	}
	if err := Replace(filepath.Join(r.Dir, BenchFile), b.Bytes()); err != nil {
		return fmt.Errorf("run folder: %w", err)
	}
	b.Reset()
	if err := WriteCSV(&b, r.Rows()); err != nil {
		return err
	}
	if err := Replace(filepath.Join(r.Dir, CSVFile), b.Bytes()); err != nil {
		return fmt.Errorf("run folder: %w", err)
	}
	return nil
}
