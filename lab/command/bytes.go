package command

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"attnlab/harness/machine"
)

// Bytes is the value of a flag that takes a size, such as 512MB, 2GB or 1.5GiB.
type Bytes int64

// UnmarshalText reads a size.
func (b *Bytes) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	number := strings.TrimRight(s, "kKmMgGtTiIbB ")
	unit, ok := map[string]float64{
		"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
		"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
	}[strings.ToUpper(strings.TrimSpace(s[len(number):]))]
	x, err := strconv.ParseFloat(number, 64)
	if err != nil || !ok || !(x > 0) || x*unit >= math.MaxInt64 {
		return fmt.Errorf("%q is not a size such as 512MB, 2GB or 1.5GiB", s)
	}
	*b = Bytes(x * unit)
	return nil
}

// String spells the size so that it reads back exactly.
func (b Bytes) String() string { return strconv.FormatInt(int64(b), 10) }

// limit returns the memory that a point may take: b or, if b is 0, half of what is available.
func (b Bytes) limit() int64 {
	if b > 0 {
		return int64(b)
	}
	n, _ := machine.Available()
	return n / 2
}
