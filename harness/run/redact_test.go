package run_test

import (
	"slices"
	"strings"
	"testing"

	"attnlab/harness/run"
)

// TestRedacted checks that a peer's command is reduced to its name and the base name of its
// program, however the flag is written.
func TestRedacted(t *testing.T) {
	for was, want := range map[string]string{
		"me=node peer.mjs":                     "me=node",
		"me=TOKEN=abc node peer.mjs --key=def": "me=node",
		"me=A=1 B=abc /opt/x/bin/node peer.mjs,you=env T=abc python3 -u peer.py": "me=node,you=env",
		`me=node peer.mjs --list=a\,you=abc`:                                     "me=node",
		"me=node peer.mjs --list=a,abc":                                          "me=node,...",
		"TOKEN abc":                                                              "...",
		"me=TOKEN=abc":                                                           "me=...",
		"me=":                                                                    "me=...",
	} {
		for args, wanted := range map[string]string{
			"benchrun|sweep|--peer|" + was + "|--seq|8": "benchrun|sweep|--peer|" + want + "|--seq|8",
			"benchrun|sweep|--peer=" + was + "|-o|me=x": "benchrun|sweep|--peer=" + want + "|-o|me=x",
		} {
			if got := run.Redacted(strings.Split(args, "|")); !slices.Equal(got, strings.Split(wanted, "|")) {
				t.Errorf("%s is %q, want %q", args, got, wanted)
			}
		}
	}
}
