package asmgen

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var generate = flag.Bool("generate", false, "rewrite the generated files")

// TestFiles checks that the generated files of package asm are what Files returns, and that there
// are no others.
func TestFiles(t *testing.T) {
	const dir = "../.."
	files := Files()
	for name, want := range files {
		path := filepath.Join(dir, name)
		if *generate {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s is not what the generator writes (%v): run go test ./kernels/asm/internal/asmgen -generate", name, err)
		}
	}
	sources, err := filepath.Glob(filepath.Join(dir, "*.[ghs]*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range sources {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(text), "// Code generated") && files[filepath.Base(path)] == "" {
			t.Errorf("%s: the generator does not write this file", path)
		}
	}
}
