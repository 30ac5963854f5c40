// Package profile reports where the time of a point goes. It reads the CPU profile that a worker
// makes, and lists the loop with most samples, instruction by instruction.
//
// A profile is a file that go tool pprof reads: gzip around a protocol buffer
// (perftools.profiles.Profile). This package reads the innermost address of each sample, which
// names an instruction even in assembly. That is the instruction that was next when the timer
// fired. On a CPU that executes out of order it is often one that waited for the slow instruction,
// and not the slow one itself.
package profile

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// A Profile counts samples by address.
type Profile struct {
	Samples int64
	Spots   []Spot // in order of address
}

// A Spot is an address with samples.
type Spot struct {
	Addr     uint64
	Samples  int64
	Function string // the function at the address; not one inlined there
	File     string // of the instruction's source line
	Line     int64
}

// Numbers of the protocol buffer's fields that are read, by message.
const (
	profileSample, profileLocation, profileFunction, profileString = 2, 4, 5, 6
	sampleLocation, sampleValue                                    = 1, 2
	locationID, locationAddress, locationLine                      = 1, 3, 4
	lineFunction, lineNumber                                       = 1, 2
	functionID, functionName, functionFile                         = 1, 2, 4
)

type location struct {
	addr         uint64
	inner, outer uint64 // functions: of the source line, and the one it is inlined into
	line         int64
}

type function struct{ name, file uint64 }

// Parse reads a profile as runtime/pprof writes it.
func Parse(data []byte) (*Profile, error) {
	p, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("CPU profile: %w", err)
	}
	return p, nil
}

func parse(data []byte) (*Profile, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if data, err = io.ReadAll(z); err != nil {
		return nil, err
	}
	p := new(Profile)
	at := map[uint64]int64{} // samples, by location
	locations, functions, texts := map[uint64]location{}, map[uint64]function{}, []string(nil)
	err = fields(data, func(f field) error {
		switch f.number {
		case profileSample:
			where, n, err := f.sample()
			p.Samples += n
			at[where] += n
			return err
		case profileLocation:
			id, l, err := f.location()
			locations[id] = l
			return err
		case profileFunction:
			id, g, err := f.function()
			functions[id] = g
			return err
		case profileString:
			texts = append(texts, string(f.bytes))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	text := func(i uint64) string {
		if i < uint64(len(texts)) {
			return texts[i]
		}
		return ""
	}
	for id, n := range at {
		l := locations[id]
		p.Spots = append(p.Spots, Spot{l.addr, n, text(functions[l.outer].name), text(functions[l.inner].file), l.line})
	}
	slices.SortFunc(p.Spots, func(a, b Spot) int { return cmp.Compare(a.Addr, b.Addr) })
	return p, nil
}

// Hottest returns the function with most samples, and their number; of several, the first by name.
func (p *Profile) Hottest() (function string, samples int64) {
	in := map[string]int64{}
	for _, s := range p.Spots {
		in[s.Function] += s.Samples
	}
	for name, n := range in {
		if n > samples || n == samples && name < function {
			function, samples = name, n
		}
	}
	return function, samples
}

// A field of a message: a number, or bytes.
type field struct {
	number int
	value  uint64
	bytes  []byte
}

var errCut = errors.New("cut short")

// fields calls f for each field of a message, in order.
func fields(b []byte, f func(field) error) error {
	number := func() (uint64, error) {
		x, n := binary.Uvarint(b)
		if n <= 0 {
			return 0, errCut
		}
		b = b[n:]
		return x, nil
	}
	for len(b) > 0 {
		key, err := number()
		if err != nil {
			return err
		}
		at := field{number: int(key >> 3)}
		switch key & 7 {
		case 0:
			if at.value, err = number(); err != nil {
				return err
			}
		case 2:
			n, err := number()
			if err != nil || n > uint64(len(b)) {
				return errCut
			}
			at.bytes, b = b[:n], b[n:]
		default:
			return fmt.Errorf("wire type %d in field %d", key&7, at.number)
		}
		if err := f(at); err != nil {
			return err
		}
	}
	return nil
}

// first returns the first of a repeated number, packed or not.
func (f field) first() uint64 {
	if f.bytes == nil {
		return f.value
	}
	x, _ := binary.Uvarint(f.bytes)
	return x
}

// sample returns the innermost location and the number of samples there.
func (f field) sample() (where uint64, n int64, err error) {
	seen := map[int]bool{}
	err = fields(f.bytes, func(f field) error {
		if seen[f.number] {
			return nil
		}
		seen[f.number] = true
		switch f.number {
		case sampleLocation:
			where = f.first()
		case sampleValue:
			n = int64(f.first())
		}
		return nil
	})
	return where, n, err
}

func (f field) location() (id uint64, l location, err error) {
	lines := 0
	err = fields(f.bytes, func(f field) error {
		switch f.number {
		case locationID:
			id = f.value
		case locationAddress:
			l.addr = f.value
		case locationLine: // the innermost of inlined ones first
			var function uint64
			var number int64
			if err := fields(f.bytes, func(f field) error {
				switch f.number {
				case lineFunction:
					function = f.value
				case lineNumber:
					number = int64(f.value)
				}
				return nil
			}); err != nil {
				return err
			}
			if lines++; lines == 1 {
				l.inner, l.line = function, number
			}
			l.outer = function
		}
		return nil
	})
	return id, l, err
}

func (f field) function() (id uint64, g function, err error) {
	err = fields(f.bytes, func(f field) error {
		switch f.number {
		case functionID:
			id = f.value
		case functionName:
			g.name = f.value
		case functionFile:
			g.file = f.value
		}
		return nil
	})
	return id, g, err
}
