package peers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// A peer's output appears in reports and on terminals. The arguments and the environment of its
// command may be secret and a program may repeat them, so they are struck out. Output may be long
// or contain escape sequences, so it is shortened and control characters become spaces.

// textLimit is the largest number of bytes that are quoted from a peer's output.
const textLimit = 400

// shortSecret is the length of the longest word that is not struck out. Such a word is a switch or
// a number, and occurs in any text.
const shortSecret = 3

// A censor strikes out words.
type censor struct {
	strike  *strings.Replacer
	longest int
}

// newCensor returns a censor that strikes out the arguments of a command and the assignments before
// it: each as a whole, and the value in it.
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

// clean returns a text of a peer in a form for reports.
func (c censor) clean(text string) string { return brief(c.strike.Replace(text)) }

// brief returns the beginning of a text, without control characters.
func brief(text string) string {
	text = strings.TrimSpace(plain(text))
	if len(text) > textLimit {
		text = strings.ToValidUTF8(text[:textLimit], "") + "..."
	}
	return text
}

// quote returns a text of a peer in quotes, cleaned and short.
func (c censor) quote(text []byte) string {
	return fmt.Sprintf("%.80q", strings.ToValidUTF8(c.strike.Replace(string(text)), "\uFFFD"))
}

// lastOf returns the end of a text in a form for reports. If the text was cut before, the beginning
// is dropped: the cut may have split a word to be struck out.
func (c censor) lastOf(text []byte, cut bool) string {
	s := plain(c.strike.Replace(string(text)))
	if cut {
		s = s[min(len(s), c.longest):]
	}
	return strings.TrimSpace(strings.ToValidUTF8(s[max(0, len(s)-textLimit):], ""))
}

// plain replaces control characters by spaces.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}
