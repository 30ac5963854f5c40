package run

import (
	"path/filepath"
	"regexp"
	"strings"
)

// peerFlag names programs, whose arguments and environment may be secret.
const peerFlag = "--peer"

// Redacted returns a command line fit for a report: of each program of --peer it has the name and
// the base name of the program, NAME=PROGRAM, without the assignments before it and the arguments
// after it.
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

// RedactedPeers is Redacted for a value of the flag alone: a list separated by commas, those behind
// a backslash excepted. What does not read is left out.
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
