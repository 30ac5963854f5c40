package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"attnlab/harness/profile"
	"attnlab/harness/run"
)

// TestProfileFile checks that points with many features have file names that are short and differ.
func TestProfileFile(t *testing.T) {
	at := run.Point{Kernel: "flash", SeqKV: 64, Features: strings.Repeat("relative-clipped:16+", 15)}.WithDefaults()
	a := profileFile("r", at, ".pprof")
	at.Features += "lse"
	if b := profileFile("r", at, ".pprof"); a == b || len(filepath.Base(b)) > 220 || filepath.Ext(b) != ".pprof" {
		t.Errorf("%s and %s", a, b)
	}
}

// TestProfileOfAssembly checks that the profile of a kernel with assembly loops names them, and
// that its listing has their instructions.
func TestProfileOfAssembly(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a profile takes two seconds")
	}
	isas := labOf(nil).Sets.Available()
	best := isas[len(isas)-1]
	if best == "go" {
		t.Skip("there is no assembly here")
	}
	dir := filepath.Join(t.TempDir(), "r")
	cmd, stderr := begin(t, "sweep", "--kernel", "flash", "--isa", best, "--seq", "512", "--mask", "full", "--samples", "1", "--disasm", "-o", dir)
	if code := exitOf(cmd.Wait()); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	var data [2][]byte
	for i, ext := range []string{".pprof", ".txt"} {
		files, err := filepath.Glob(filepath.Join(dir, run.ProfilesDir, "*"+ext))
		if err != nil || len(files) != 1 {
			t.Fatalf("%s: %v, %v", ext, files, err)
		}
		if data[i], err = os.ReadFile(files[0]); err != nil {
			t.Fatal(err)
		}
	}
	p, err := profile.Parse(data[0])
	if err != nil {
		t.Fatal(err)
	}
	if p.Samples == 0 {
		t.Skip("this system gives a process no samples")
	}
	name, _ := p.Hottest()
	if !strings.HasPrefix(name, "attnlab/kernels/asm."+best) {
		t.Errorf("the hottest function is %s, want one of %s", name, best)
	}
	for _, s := range p.Spots {
		if s.Function == name && filepath.Ext(s.File) != ".s" {
			t.Errorf("%+v is not assembly", s)
		}
	}
	if listing := string(data[1]); !strings.Contains(listing, "samples fell in "+name+".\n") || !strings.Contains(listing, "\nsamples   address  ") {
		t.Errorf("the listing:\n%s", listing)
	}
}
