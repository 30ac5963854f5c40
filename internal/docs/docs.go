// Package docs parses the Markdown pages of this module. Its tests check the pages against the
// sources and the committed runs:
//
//   - docs/tuning.md has a section for each link from a tuned constant, and no other. Each of its
//     figures names its run, or says that the run is lost.
//   - Each table of figures names its run or its command.
//   - Relative links lead to files and headings, and something links each file in docs.
//   - The README is short, its examples run, and its claim agrees with its table.
//   - reports/history has the layout that its README.md gives.
//
// The tests parse files and start no program but go mod edit. The test cache therefore sees every
// file they depend on.
package docs

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// A Block is a part of a page between empty lines: a heading, a table, code, or else a paragraph,
// which may be a list or a comment.
type Block struct {
	Line    int // of its first line, from 1
	Kind    Kind
	Text    string     // as written
	Level   int        // of a heading
	Heading string     // its text
	Anchor  string     // by which a link names it
	Header  []string   // of a table
	Rows    [][]string // below the header
}

// Kind is what a block is.
type Kind int

// Kinds of blocks.
const (
	Paragraph Kind = iota
	Heading
	Table
	Code
)

// Parse returns the blocks of a page.
func Parse(page string) []Block {
	var blocks []Block
	anchors := map[string]int{}
	lines := strings.Split(strings.ReplaceAll(page, "\r\n", "\n"), "\n")
	for i := 0; i < len(lines); {
		if strings.TrimSpace(lines[i]) == "" {
			i++
			continue
		}
		kind, first := kindOf(lines, i), i
		for i++; i < len(lines) && continues(kind, lines, i); i++ {
		}
		if kind == Code && i < len(lines) { // the closing fence
			i++
		}
		b := Block{Line: first + 1, Kind: kind, Text: strings.Join(lines[first:i], "\n")}
		switch kind {
		case Heading:
			b.Heading = strings.TrimSpace(strings.TrimLeft(b.Text, "#"))
			b.Level = len(b.Text) - len(strings.TrimLeft(b.Text, "#"))
			b.Anchor = anchor(b.Heading, anchors)
		case Table:
			b.Header = cells(lines[first])
			for _, line := range lines[first+2 : i] {
				b.Rows = append(b.Rows, cells(line))
			}
		}
		blocks = append(blocks, b)
	}
	return blocks
}

const fence = "```"

var (
	headingLine = regexp.MustCompile(`^#{1,6} `)
	ruleLine    = regexp.MustCompile(`^\|?( *:?-+:? *\|)+ *(:?-+:? *)?$`) // below a table's header
)

// kindOf returns the kind of the block that begins at a line.
func kindOf(lines []string, i int) Kind {
	switch {
	case strings.HasPrefix(lines[i], fence):
		return Code
	case headingLine.MatchString(lines[i]):
		return Heading
	case i+1 < len(lines) && strings.HasPrefix(lines[i], "|") && ruleLine.MatchString(lines[i+1]):
		return Table
	}
	return Paragraph
}

// continues reports whether a block goes on with line i.
func continues(kind Kind, lines []string, i int) bool {
	switch kind {
	case Code:
		return !strings.HasPrefix(lines[i], fence)
	case Table:
		return strings.HasPrefix(lines[i], "|")
	case Paragraph:
		return strings.TrimSpace(lines[i]) != "" && kindOf(lines, i) == Paragraph
	}
	return false
}

// cells splits a line of a table. An escaped bar, \|, and a bar in code are parts of a cell.
func cells(line string) []string {
	line = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "|"), "|")
	var row []string
	var cell strings.Builder
	code := false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\' && i+1 < len(line) && line[i+1] == '|':
			i++
			cell.WriteByte('|')
		case c == '|' && !code:
			row = append(row, strings.TrimSpace(cell.String()))
			cell.Reset()
		default:
			if c == '`' {
				code = !code
			}
			cell.WriteByte(c)
		}
	}
	return append(row, strings.TrimSpace(cell.String()))
}

// anchor returns the anchor of a heading: its letters, digits and hyphens in lower case, with
// hyphens for spaces. A heading that repeats an earlier one gets a number.
func anchor(heading string, used map[string]int) string {
	var b strings.Builder
	for _, r := range strings.ToLower(heading) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			b.WriteRune(r)
		}
	}
	name := b.String()
	n := used[name]
	used[name]++
	if n > 0 {
		name += "-" + strconv.Itoa(n)
	}
	return name
}
