package main

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/kernels"
)

// Every command line that the documentation shows must be one that this program takes. Lines that measure are only parsed, and their grids
// laid out; what they do has tests of its own.
func TestDocumentedCommands(t *testing.T) {
	found := 0
	for _, file := range []string{"README.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?m)(?:^|`)(?:benchrun|go run ./cmd/benchrun)\\b([^`\n]*)").FindAllStringSubmatch(string(text), -1) {
			line := m[1]
			if i := strings.Index(line, "   "); i >= 0 { // the rest says what it does
				line = line[:i]
			}
			line = regexp.MustCompile(`\[([^]|]*)[^]]*\]`).ReplaceAllString(line, "$1") // options in brackets
			found++
			c, k, err := parse(strings.Fields(line), streams{io.Discard, io.Discard})
			if err != nil {
				t.Errorf("%s: benchrun%s: %v", file, line, err)
				continue
			}
			if k.Command() == "sweep" && !c.Sweep.Resume {
				if _, err := c.Sweep.points([]attn.Kernel(kernels.All()), io.Discard); err != nil {
					t.Errorf("%s: benchrun%s: %v", file, line, err)
				}
			}
		}
	}
	if found < 8 {
		t.Errorf("found only %d commands; the documentation has more", found)
	}
}

// The help of verify explains every family that its table shows.
func TestFamiliesAreExplained(t *testing.T) {
	_, help, _ := strings.Cut((*VerifyCmd)(nil).Help(), "Families: ")
	for _, c := range cases.All() {
		if !regexp.MustCompile(`\b` + c.Family + `\b`).MatchString(help) {
			t.Fatalf("%s is not in the help of verify", c.Family)
		}
	}
}
