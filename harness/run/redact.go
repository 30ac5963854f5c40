package run

import (
	"path/filepath"
	"regexp"
	"strings"
)

// peerFlag names programs, whose arguments and environment may be secret.
const peerFlag = "--peer"

// Redacted returns a command line that is fit for a report. Each program of --peer is reduced to
// NAME=PROGRAM, with the program's base name: assignments before it and arguments after it go.
func Redacted(args []string) []string {
	list := make([]string, len(args))
	for i, arg := range args {
		value, joined := strings.CutPrefix(arg, peerFlag+"=")
		switch {
		case joined:
			list[i] = peerFlag + "=" + RedactedPeers(value)
		case i > 0 && args[i-1] == peerFlag:
			list[i] = RedactedPeers(arg)
		default:
			list[i] = arg
		}
	}
	return list
}

var (
	peerSpec   = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]*)=`)
	assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
)

// RedactedPeers is Redacted for one value of --peer: a list separated by commas. A comma behind a
// backslash separates nothing. An entry without a name becomes three dots.
func RedactedPeers(value string) string {
	var list []string
	for _, spec := range strings.Split(strings.ReplaceAll(value, `\,`, " "), ",") {
		name := peerSpec.FindStringSubmatch(spec)
		if name == nil {
			list = append(list, "...")
			continue
		}
		program := "..."
		for _, word := range strings.Fields(spec[len(name[0]):]) {
			if !assignment.MatchString(word) {
				program = filepath.Base(word)
				break
			}
		}
		list = append(list, name[1]+"="+program)
	}
	return strings.Join(list, ",")
}
