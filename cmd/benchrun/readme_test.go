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
	"attnlab/kernels/naive"
)

// Every command line that the documentation shows must be one that this program takes. Lines that
// measure are only parsed, and their grids laid out; what they do has tests of its own.
func TestDocumentedCommands(t *testing.T) {
	found := 0
	for _, file := range []string{"README.md", "CONTRIBUTING.md", "docs/performance.md"} {
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
			words := regexp.MustCompile(`'[^']*'|\S+`).FindAllString(line, -1)
			for i := range words {
				words[i] = strings.Trim(words[i], "'")
			}
			c, k, err := parse(words, streams{io.Discard, io.Discard})
			if err != nil {
				t.Errorf("%s: benchrun%s: %v", file, line, err)
				continue
			}
			if k.Command() == "sweep" && !c.Sweep.Resume {
				all, err := c.Sweep.join(kernels.All())
				for i, k := range all {
					if name, isa := k.Name(); isa == attn.Native { // it may not be installed
						all[i] = standIn{naive.New(), name}
					}
				}
				if err == nil {
					_, err = c.Sweep.points(all, io.Discard)
				}
				if err != nil {
					t.Errorf("%s: benchrun%s: %v", file, line, err)
				}
			}
		}
	}
	if found < 8 {
		t.Errorf("found only %d commands; the documentation has more", found)
	}
}

// A standIn has the name of a peer.
type standIn struct {
	attn.Kernel
	name string
}

func (k standIn) Name() (algo, isa string) { return k.name, attn.Native }

// The help of verify explains every family that its table shows.
func TestFamiliesAreExplained(t *testing.T) {
	_, help, _ := strings.Cut((*VerifyCmd)(nil).Help(), "Families: ")
	for _, c := range cases.All() {
		if !regexp.MustCompile(`\b` + c.Family + `\b`).MatchString(help) {
			t.Fatalf("%s is not in the help of verify", c.Family)
		}
	}
}
