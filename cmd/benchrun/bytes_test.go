package main

import (
	"testing"

	"pgregory.net/rapid"
)

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

func TestBytesReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Bytes(rapid.Int64Range(1, 1<<53).Draw(t, "bytes"))
		var again Bytes
		if err := again.UnmarshalText([]byte(b.String())); err != nil || again != b {
			t.Errorf("%d comes back as %d; %v", b, again, err)
		}
	})
}
