package docs

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// A figure is a cell that begins with a number that has a decimal point or a unit. Other numbers
// are counts, which need no measurement.
var figure = regexp.MustCompile(`^[-+±<~]?(\d*\.\d|\d[\d ]*(%|n?s\b|µs|ms\b|min\b|[KMGT]?i?B\b|[KMGT]?FLOP|[KMG]?Hz\b))`)

// A source is what a table of figures is from: a committed run, or a command.
var source = regexp.MustCompile("reports/history/[\\w.-]+/\\w+|`(benchrun|go (test|run)|\\.ci/)[^`]*`")

// unsourced returns what is wrong with the tables of a page: each that holds figures, outside its
// first column, must have a column named run, or a source in the block just before or after it.
func unsourced(blocks []Block) (faults []string) {
	for i, b := range blocks {
		if b.Kind != Table || slices.Contains(b.Header, "run") || !holdsFigures(b.Rows) {
			continue
		}
		named := false
		for _, at := range []int{i - 1, i + 1} {
			if at >= 0 && at < len(blocks) && blocks[at].Kind != Heading && blocks[at].Kind != Table {
				named = named || source.MatchString(blocks[at].Text)
			}
		}
		if !named {
			faults = append(faults, fmt.Sprintf("line %d: a table of figures without its source; name the run, reports/history/MACHINE/COMMIT, or the command, `benchrun ...`, in the paragraph just before or after it", b.Line))
		}
	}
	return faults
}

func holdsFigures(rows [][]string) bool {
	for _, row := range rows {
		if len(row) > 1 && slices.ContainsFunc(row[1:], figure.MatchString) {
			return true
		}
	}
	return false
}

// TestTablesNameTheirSource checks the tables of README.md and of all pages in docs.
func TestTablesNameTheirSource(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(pages) < 5 {
		t.Fatalf("%d pages in docs: %v", len(pages), err)
	}
	for _, page := range append(pages, filepath.Join(root, "README.md")) {
		page, err := filepath.Rel(root, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range unsourced(read(t, page)) {
			t.Errorf("%s: %s", page, fault)
		}
	}
}

// TestUnsourced checks which tables are found to lack a source.
func TestUnsourced(t *testing.T) {
	const rule = "\n|---|---|\n"
	for _, c := range []struct {
		page string
		want int
	}{
		{"| set | rows |" + rule + "| avx2 | 4 × 3 |", 0}, // counts
		{"| 0.5 | what |" + rule + "| 0.7 | words |", 0},  // the first column
		{"| set | time |" + rule + "| avx2 | 0.84 |", 1},
		{"| set | time |" + rule + "| avx2 | .84 |", 1},
		{"| set | time |" + rule + "| avx2 | 84 ms |", 1},
		{"| set | share |" + rule + "| avx2 | 84 % |", 1},
		{"Of `reports`.\n\n| set | time |" + rule + "| avx2 | 84 ms |", 1},
		{"`benchrun sweep`\n\n# Heading\n\n| set | time |" + rule + "| avx2 | 84 ms |", 1},
		{"`benchrun sweep`\n\nSome words.\n\n| set | time |" + rule + "| avx2 | 84 ms |", 1},
		{"By `benchrun sweep`:\n\n| set | time |" + rule + "| avx2 | 84 ms |", 0},
		{"| set | time |" + rule + "| avx2 | 84 ms |\n\n`go test -bench .`", 0},
		{"<!-- times: reports/history/zen5-2cpu/0cfb7c3 -->\n| set | time |" + rule + "| avx2 | 84 ms |\n<!-- end -->", 0},
		{"| set | run |" + rule + "| avx2 | 84 ms |", 0},
	} {
		if got := unsourced(Parse(c.page)); len(got) != c.want {
			t.Errorf("%q: got %q, want %d", c.page, got, c.want)
		}
	}
}
