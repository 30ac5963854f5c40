package peers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// What a peer writes goes to reports and terminals. Its arguments and its environment may be
// secret, and a program may repeat them: they are struck out. What it writes may be long or hold
// escape sequences: it is cut, and control characters become spaces.

// textLimit is the most bytes quoted of what a peer writes.
const textLimit = 400

// shortSecret is the length up to which a word of a command is taken for a switch or a number,
// which would be found in any text.
const shortSecret = 3

// A censor strikes out words.
type censor struct {
	strike  *strings.Replacer
	longest int
}

// newCensor strikes out the arguments of a command, and the assignments before it: each as a whole,
// and the value in it.
func newCensor(env, args []string) censor {
	var c censor
	var words []string
	for _, w := range slices.Concat(env, args) {
		words = append(words, w)
		if _, value, ok := strings.Cut(w, "="); ok {
			words = append(words, value)
		}
	}
	slices.SortFunc(words, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	var pairs []string
	for _, w := range words {
		if len(w) > shortSecret {
			pairs = append(pairs, w, "***")
			c.longest = max(c.longest, len(w))
		}
	}
	c.strike = strings.NewReplacer(pairs...)
	return c
}

// clean makes a text of a peer fit for a report.
func (c censor) clean(text string) string { return brief(c.strike.Replace(text)) }

// brief is the beginning of a text, without control characters.
func brief(text string) string {
	text = strings.TrimSpace(plain(text))
	if len(text) > textLimit {
		text = strings.ToValidUTF8(text[:textLimit], "") + "..."
	}
	return text
}

// quote is clean, in quotes and short.
func (c censor) quote(text []byte) string {
	return fmt.Sprintf("%.80q", strings.ToValidUTF8(c.strike.Replace(string(text)), "\uFFFD"))
}

// lastOf makes the end of a text fit for a report. If it was cut before, the cut may have gone
// through a word to be struck out.
func (c censor) lastOf(text []byte, cut bool) string {
	s := plain(c.strike.Replace(string(text)))
	if cut {
		s = s[min(len(s), c.longest):]
	}
	return strings.TrimSpace(strings.ToValidUTF8(s[max(0, len(s)-textLimit):], ""))
}

// plain replaces control characters.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}
