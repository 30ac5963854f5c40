// Package markdown writes text into Markdown.
package markdown

import "strings"

// Escape returns the source for a text that Markdown then shows unchanged, in a paragraph, a
// heading or a cell of a table. Line breaks become spaces. Marks of a list or a quote at the
// beginning of a line are not escaped.
func Escape(text string) string { return escaper.Replace(text) }

var escaper = strings.NewReplacer(
	"\r\n", " ", "\r", " ", "\n", " ",
	"&", "&amp;", "<", "&lt;",
	`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "|", `\|`, "~", `\~`, "$", `\$`, "#", `\#`,
)
