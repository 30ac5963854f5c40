package command

import (
	"math/rand/v2"
	"testing"
)

// TestBytes checks which sizes are read, and which texts are refused.
func TestBytes(t *testing.T) {
	for text, want := range map[string]Bytes{
		"1": 1, "512MB": 512e6, "2GB": 2e9, "2 GB": 2e9, "2g": 2e9, "1.5GiB": 3 << 29, "64kib": 64 << 10, "7B": 7, "3T": 3e12,
	} {
		var b Bytes
		if err := b.UnmarshalText([]byte(text)); err != nil || b != want {
			t.Errorf("%q is %d, want %d; %v", text, b, want, err)
		}
	}
	for _, text := range []string{"", "GB", "-1GB", "0", "lots", "1XB", "1GBB", "NaN", "Inf", "1e30", "9223372036854775808"} {
		var b Bytes
		if err := b.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken for %d", text, b)
		}
	}
}

// TestBytesReadBack checks that sizes of all lengths are spelt so that they read back. It draws
// them without a package for property tests: scripts start this binary hundreds of times, and those
// packages take long to begin.
func TestBytesReadBack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		b := Bytes(1 + r.Int64N(1<<53)>>r.IntN(53)) // of all lengths
		var again Bytes
		if err := again.UnmarshalText([]byte(b.String())); err != nil || again != b {
			t.Fatalf("%d comes back as %d; %v", b, again, err)
		}
	}
}
