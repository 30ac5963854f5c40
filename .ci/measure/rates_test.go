// Package measure holds the tests of the scripts beside it.
package measure

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"attnlab/internal/processtest"
)

// TestRatesCountFailures checks that rates.sh counts a crash of benchrun as a failure, and ends
// when benchrun refuses its arguments.
func TestRatesCountFailures(t *testing.T) {
	processtest.Needed(t)
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash")
	}
	bin := t.TempDir()
	const builds = `#!/bin/sh
cat >"$6" <<'END'
#!/bin/sh
case $1 in
machine) echo 'cpu  A CPU' ;;
list) echo 'go  yes  flash' ;;
ab) echo "what $CODE says" >&2; exit "$CODE" ;;
esac
END
chmod +x "$6"
`
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte(builds), 0o755); err != nil {
		t.Fatal(err)
	}
	rates := func(code string) (table, errs string, failed error) {
		cmd := exec.Command("bash", "rates.sh", "2")
		cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "CODE="+code)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		return string(out), stderr.String(), err
	}
	if table, errs, err := rates("2"); err != nil || !strings.Contains(table, "| flash | 2 | 0 | 0.0 to 65.8 % | 0 | 0 | 0 | 2 |") {
		t.Errorf("crashes are not counted as such: %v\n%s%s", err, table, errs)
	}
	if table, errs, err := rates("4"); err == nil || !strings.Contains(errs, "what 4 says") || strings.Contains(table, "| flash") {
		t.Errorf("a tool error does not end it: %v\n%s%s", err, table, errs)
	}
}
