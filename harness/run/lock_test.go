package run

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestLockFile checks that a locked file cannot be locked a second time, and can be read.
func TestLockFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	var files [2]*os.File
	for i := range files {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files[i] = f
	}
	switch err := Lock(files[0]); {
	case errors.Is(err, errors.ErrUnsupported):
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	if err := Lock(files[1]); !errors.Is(err, ErrLocked) {
		t.Errorf("a second lock: got %v, want %v", err, ErrLocked)
	}
	if text, err := os.ReadFile(path); string(text) != "text" {
		t.Errorf("read while locked: got %q, %v", text, err)
	}
	files[0].Close()
	if err := Lock(files[1]); err != nil {
		t.Errorf("after the first holder closed it: %v", err)
	}
}
