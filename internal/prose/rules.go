package prose

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	columns = 100 // of a line
	words   = 40  // of a sentence
)

// phrases lists words that name a shadow of the thing, and says what to write.
var phrases = []struct {
	found *regexp.Regexp
	write string
}{
	{regexp.MustCompile(`(?i)\b(?:so (?:many|few|long)|from one on|from one to another)\b`), "a name: n keys starting at first"},
	{regexp.MustCompile(`(?i)\bin hand\b`), "what holds it"},
	{regexp.MustCompile(`(?i)\bby turns\b`), "interleaved, alternately"},
	{regexp.MustCompile(`(?i)\bthose that\b`), "the noun"},
	{regexp.MustCompile(`(?i)\bthe same for\b`), "what it does for it"},
	{regexp.MustCompile(`(?i)\bwhat comes\b`), "the noun"},
	{regexp.MustCompile(`(?i)\b(?:somebody|nobody)\b`), "the thread, query or process"},
	{regexp.MustCompile(`(?i)\bthe way back\b`), "the backward pass"},
	{regexp.MustCompile(`(?i)\bmiddle one\b`), "median"},
	{regexp.MustCompile(`(?i)\bbring(?:s|ing)? together\b`), "pack"},
}

// figures matches what a CPU was seen to do, and names of CPUs.
var figures = []*regexp.Regexp{
	regexp.MustCompile(`\b(?:Xeons?|EPYC|Ryzen|Zen ?\d|Neoverse|Cascade Lake|Ice Lake|Sapphire Rapids|Skylake|Haswell|Nehalem|model \d{2,3}|Apple M\d)\b`),
	regexp.MustCompile(`\d ?% (?:faster|slower|longer|less|more) ?(?:time|speed)?\b`),
	regexp.MustCompile(`\d ?(?:GB/s|GFLOP/s|GHz)\b`),
	regexp.MustCompile(`\b0?\.\d+ of (?:the|its) peak\b`),
}

// A finding is one thing that reads badly, at a line.
type finding struct {
	line int
	text string
}

// width checks one line for its width.
func width(text string) string {
	if n := utf8.RuneCountInString(text); n > columns {
		return fmt.Sprintf("got %d columns, want at most %d: wrap it", n, columns)
	}
	return ""
}

// read checks a paragraph. Comments hold no measurements; documentation may.
func read(paragraph string, comment bool) []string {
	var found []string
	for _, p := range phrases {
		if m := p.found.FindString(paragraph); m != "" {
			found = append(found, fmt.Sprintf("%q: write %s", m, p.write))
		}
	}
	if comment {
		for _, f := range figures {
			if m := f.FindString(paragraph); m != "" {
				found = append(found, fmt.Sprintf("%q was seen on some CPU: it belongs to docs/tuning.md", m))
			}
		}
	}
	for _, s := range sentences(paragraph) {
		if n := len(strings.Fields(s)); n > words {
			found = append(found, fmt.Sprintf("got a sentence of %d words, want at most %d: %.60s...", n, words, s))
		}
	}
	return found
}

var ends = regexp.MustCompile(`[.!?]['")\]]*(?:\s+|$)`)

// sentences splits a paragraph at the ends of sentences.
func sentences(paragraph string) []string { return ends.Split(paragraph, -1) }
