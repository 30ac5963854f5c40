package prose

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"attnlab/internal/docs"
)

var under = flag.String("under", "../..", "check the files below this folder")

// TestProse checks every comment of Go files and every page of documentation.
func TestProse(t *testing.T) {
	checked := 0
	err := filepath.WalkDir(*under, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if name := d.Name(); file != *under && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" || name == "runs" || name == "history") {
				return filepath.SkipDir
			}
			return nil
		}
		var found []finding
		switch filepath.Ext(file) {
		case ".go":
			found, err = goFile(file)
		case ".md":
			found, err = markdownFile(file)
		default:
			return nil
		}
		checked++
		for _, f := range found {
			t.Errorf("%s:%d: %s", file, f.line, f.text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked == 0 {
		t.Errorf("no file below %s was checked", *under)
	}
}

// goFile checks the comments of a Go file.
func goFile(file string) ([]finding, error) {
	set := token.NewFileSet()
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	f, err := parser.ParseFile(set, file, source, parser.ParseComments)
	if err != nil || ast.IsGenerated(f) && !strings.HasSuffix(file, "_test.go") {
		return nil, err
	}
	var found []finding
	for _, group := range f.Comments {
		if strings.HasPrefix(group.Text(), "Output:") { // what an example prints
			continue
		}
		var paragraph []string
		start := 0
		end := func() {
			for _, text := range read(strings.Join(paragraph, " "), true) {
				found = append(found, finding{start, text})
			}
			paragraph = nil
		}
		for _, c := range group.List {
			at := set.Position(c.Pos())
			for i, line := range strings.Split(c.Text, "\n") {
				column := 0
				if i == 0 {
					column = at.Column - 1 + 3*tabs(source, at.Offset)
				}
				if text := width(strings.Repeat(" ", column) + line); text != "" && !strings.HasPrefix(line, "//go:") && !strings.Contains(line, "://") {
					found = append(found, finding{at.Line + i, text})
				}
				body, _ := strings.CutPrefix(line, "//")
				if body = strings.TrimPrefix(body, " "); strings.TrimSpace(body) == "" || body[0] == '\t' || body[0] == ' ' || strings.HasPrefix(body, "- ") || strings.HasPrefix(line, "//go:") {
					end()
					if !strings.HasPrefix(body, "- ") {
						continue
					}
				}
				if paragraph == nil {
					start = at.Line + i
				}
				paragraph = append(paragraph, strings.TrimSpace(body))
			}
		}
		end()
	}
	return found, nil
}

// tabs counts the tabs of a line before an offset; each is as wide as four columns.
func tabs(source []byte, offset int) int {
	return bytes.Count(source[bytes.LastIndexByte(source[:offset], '\n')+1:offset], []byte("\t"))
}

// markdownFile checks a page outside its code and its tables.
func markdownFile(file string) ([]finding, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var found []finding
	for _, b := range docs.Parse(string(data)) {
		if b.Kind == docs.Code || b.Kind == docs.Table {
			continue
		}
		var item []string // of a list, or the whole block
		start := b.Line
		end := func() {
			for _, text := range read(strings.Join(item, " "), false) {
				found = append(found, finding{start, text})
			}
			item = nil
		}
		for i, line := range strings.Split(b.Text, "\n") {
			if text := width(line); text != "" {
				found = append(found, finding{b.Line + i, text})
			}
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "- ") {
				end()
				start = b.Line + i
			}
			item = append(item, line)
		}
		end()
	}
	return found, nil
}

// TestRead checks that each rule finds what it is for, and nothing in plain sentences.
func TestRead(t *testing.T) {
	long := strings.Repeat("word ", words+1)
	for _, c := range []struct {
		text    string
		comment bool
		found   int
	}{
		{"scoreFrom computes rows first..N of P. It reads 12 columns.", true, 0},
		{"Copying pays once the block exceeds 2^17 bytes, a quarter of the cache.", true, 0},
		{"scores does rows from one on", true, 1},
		{"so many numbers by turns", true, 2},
		{"Decoding was 3 % faster.", true, 1},
		{"Decoding was 3 % faster.", false, 0},
		{"The probe reads 40 GB/s.", true, 1},
		{"Zen 4 prefetches by itself.", true, 1},
		{long, true, 1},
		{long, false, 1},
		{strings.Repeat("One idea. ", words), true, 0},
	} {
		if found := read(c.text, c.comment); len(found) != c.found {
			t.Errorf("%.40q, comment %v: got %d findings %v, want %d", c.text, c.comment, len(found), found, c.found)
		}
	}
	if got := width(strings.Repeat("é", columns)); got != "" {
		t.Errorf("a full line: %s", got)
	}
	if width(strings.Repeat("é", columns+1)) == "" {
		t.Error("a line of 101 columns is not found")
	}
}
