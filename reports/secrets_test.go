package reports

import (
	"bytes"
	"strings"
	"testing"

	"attnlab/harness/run"
	"attnlab/harness/run/runtest"
)

// TestSecrets checks that no form of a report has the arguments or the environment of a peer's
// program, even of a run whose record has them.
func TestSecrets(t *testing.T) {
	r := runtest.Make(t, t.TempDir()+"/run", runtest.Model{Meta: func(m *run.Meta) {
		m.Command = []string{"benchrun", "sweep", "--peer", "me=TOKEN=abc123 /opt/bin/node peer.mjs --key=def456", "--seq=8"}
		m.Flags["peer"] = m.Command[3]
	}})
	for name, write := range map[string]func(*bytes.Buffer) error{
		"Markdown": func(b *bytes.Buffer) error { return Markdown(b, r) },
		"HTML":     func(b *bytes.Buffer) error { return HTML(b, r) },
		"CSV":      func(b *bytes.Buffer) error { return run.WriteCSV(b, r.Rows()) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"abc123", "def456", "peer.mjs", "/opt/bin"} {
			if strings.Contains(b.String(), secret) {
				t.Errorf("%s has %s", name, secret)
			}
		}
		if name != "CSV" && !strings.Contains(b.String(), "benchrun sweep --peer me=node --seq=8") {
			t.Errorf("%s lacks the command", name)
		}
	}
}
