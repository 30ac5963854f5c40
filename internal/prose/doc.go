// Package prose holds comments and documentation to what can be checked of how they read: the width
// of lines, the length of sentences, and phrases that hide the noun. Comments of Go files hold no
// measurements either: those belong to docs/tuning.md.
package prose
