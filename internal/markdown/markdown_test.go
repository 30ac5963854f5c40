package markdown

import "testing"

// TestEscape checks that characters with a meaning in Markdown are escaped, and others are not.
func TestEscape(t *testing.T) {
	for text, want := range map[string]string{
		"plain, 3.5 % (2 of 3): kernel=flash/isa=go": "plain, 3.5 % (2 of 3): kernel=flash/isa=go",
		"a|b":               `a\|b`,
		`a\|b`:              `a\\\|b`,
		"a\r\nb\nc\rd":      "a b c d",
		"<b>&amp;":          "&lt;b>&amp;amp;",
		"`code`":            "\\`code\\`",
		"*a* _b_ ~~c~~ $d$": `\*a\* \_b\_ \~\~c\~\~ \$d\$`,
		"![x](y) #1":        `!\[x\](y) \#1`,
	} {
		if got := Escape(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
