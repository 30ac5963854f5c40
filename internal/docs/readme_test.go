package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const readmePage = "README.md"

// TestREADMELength checks that the README has at most 120 lines. Package prose checks how wide they
// are, as those of every page.
func TestREADMELength(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, readmePage))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n > 120 {
		t.Errorf("%s has %d lines, want at most 120: move something to docs", readmePage, n)
	}
}

// TestREADMEExamples checks that each block of Go in the README begins the body of an example in
// this package, which go test runs.
func TestREADMEExamples(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, b := range read(t, readmePage) {
		code, ok := strings.CutPrefix(b.Text, "```go\n")
		if b.Kind != Code || !ok {
			continue
		}
		found++
		code = strings.TrimSuffix(code, "\n```")
		body := regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(code, "\t$1")
		if !regexp.MustCompile(`(?m)^func Example\w*\(\) \{\n` + regexp.QuoteMeta(body) + `\n`).Match(source) {
			t.Errorf("%s:%d: no example in internal/docs/example_test.go begins with this code", readmePage, b.Line)
		}
	}
	if found != 2 {
		t.Errorf("%s has %d blocks of Go, want 2", readmePage, found)
	}
}

// TestREADMEClaim checks the claim at the top of the README against its table: our kernel is the
// first row, and takes the least time of each problem.
func TestREADMEClaim(t *testing.T) {
	blocks := read(t, readmePage)
	i := slices.IndexFunc(blocks, func(b Block) bool { return b.Kind == Heading && b.Anchor == "beside-others" })
	if i < 0 {
		t.Fatalf("%s has no heading Beside others", readmePage)
	}
	j := slices.IndexFunc(blocks[i:], func(b Block) bool { return b.Kind == Table })
	if j < 0 {
		t.Fatalf("%s has no table below Beside others", readmePage)
	}
	table := blocks[i+j]
	if !strings.Contains(table.Rows[0][0], "flash") || len(table.Rows) != 5 {
		t.Fatalf("got %d rows, the first %s; want 5, the first flash", len(table.Rows), table.Rows[0][0])
	}
	claim := strings.ToLower(blocks[1].Text)
	number := regexp.MustCompile(`\d+(\.\d+)?`)
	for _, row := range table.Rows[1:] {
		if name := strings.ToLower(strings.Fields(row[0])[0]); !strings.Contains(claim, name) && !strings.Contains(claim, strings.ReplaceAll(name, "onnxruntime", "onnx runtime")) {
			t.Errorf("the claim does not name %s", row[0])
		}
		for c := 1; c < len(row); c++ {
			ours, err := strconv.ParseFloat(number.FindString(table.Rows[0][c]), 64)
			if err != nil {
				t.Fatalf("%s, %s: %v", table.Rows[0][0], table.Header[c], err)
			}
			theirs, err := strconv.ParseFloat(number.FindString(row[c]), 64)
			if err == nil && !(ours < theirs) {
				t.Errorf("%s: %s takes %v, %s %v: the README claims otherwise", table.Header[c], table.Rows[0][0], ours, row[0], theirs)
			}
		}
	}
}

// TestREADMEModule checks that the README's command for importing this module writes the two lines
// that go.mod needs.
func TestREADMEModule(t *testing.T) {
	var command []string
	for _, b := range read(t, readmePage) {
		for _, span := range codeSpan.FindAllString(b.Text, -1) {
			if words := strings.Fields(strings.Trim(span, "`")); len(words) > 3 && slices.Equal(words[:3], []string{"go", "mod", "edit"}) {
				command = words
			}
		}
	}
	if command == nil {
		t.Fatalf("%s does not show go mod edit", readmePage)
	}
	dir := t.TempDir()
	mod := filepath.Join(dir, "go.mod")
	if err := os.WriteFile(mod, []byte("module mine\n\ngo 1.26\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
	got, err := os.ReadFile(mod)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nrequire attnlab v0.0.0\n", "\nreplace attnlab => ../attnlab\n"} {
		if !strings.Contains(string(got), want) {
			t.Errorf("go.mod lacks %q:\n%s", strings.TrimSpace(want), got)
		}
	}
}
