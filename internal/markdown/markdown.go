// Package markdown writes text into Markdown.
package markdown

import "strings"

// Escape returns what Markdown, in a paragraph, a heading or a cell of a table, shows as the text.
// Line breaks become spaces. Where the text begins a line, what makes a list or a quote is not
// escaped.
func Escape(text string) string { return escaper.Replace(text) }

var escaper = strings.NewReplacer(
	"\r\n", " ", "\r", " ", "\n", " ",
	"&", "&amp;", "<", "&lt;",
	`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "|", `\|`, "~", `\~`, "$", `\$`, "#", `\#`,
)
