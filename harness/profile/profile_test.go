package profile

import (
	"bytes"
	"compress/gzip"
	"io"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"attnlab/internal/processtest"
)

var sink float64

//go:noinline
func burn(n int) float64 {
	x := 1.0
	for i := range n {
		x += x / float64(i+2)
	}
	return x
}

// burnt is a profile of this process while it only runs burn.
var burnt = sync.OnceValue(func() []byte {
	var out bytes.Buffer
	if pprof.StartCPUProfile(&out) != nil {
		return nil
	}
	for begun := time.Now(); time.Since(begun) < 300*time.Millisecond; {
		sink += burn(1e6)
	}
	pprof.StopCPUProfile()
	return out.Bytes()
})

func parsed(t *testing.T) *Profile {
	t.Helper()
	p, err := Parse(burnt())
	if err != nil {
		t.Fatal(err)
	}
	if p.Samples == 0 {
		t.Skip("this system, or its emulator, gives a process no samples")
	}
	return p
}

// TestParse checks a profile of this process against its function.
func TestParse(t *testing.T) {
	p := parsed(t)
	name, n := p.Hottest()
	if name != "attnlab/harness/profile.burn" || n < p.Samples/2 {
		t.Errorf("%d of %d samples in %s, most of them should be in burn", n, p.Samples, name)
	}
	var sum int64
	for _, s := range p.Spots {
		sum += s.Samples
		if s.Function == name && (filepath.Base(s.File) != "profile_test.go" || s.Line == 0) {
			t.Errorf("%+v: want a line of this file", s)
		}
	}
	if sum != p.Samples {
		t.Errorf("the spots have %d samples, the profile %d", sum, p.Samples)
	}
}

// TestParseDamaged checks that a cut or garbled profile is an error or another profile, never a
// panic.
func TestParseDamaged(t *testing.T) {
	z, err := gzip.NewReader(bytes.NewReader(burnt()))
	if err != nil {
		t.Fatal(err)
	}
	whole, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	zipped := func(data []byte) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write(data)
		w.Close()
		return b.Bytes()
	}
	if _, err := Parse(zipped(whole[:len(whole)-1])); err == nil {
		t.Error("a profile without its last byte reads as whole")
	}
	if _, err := Parse(burnt()[:20]); err == nil {
		t.Error("the beginning of a file reads as whole")
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		data := slices.Clone(whole)
		data[r.IntN(len(data))] = byte(r.IntN(256))
		if p, err := Parse(zipped(data)); err == nil {
			p.Hottest()
		}
	}
}

// TestInstructions checks which lines of objdump's output are instructions.
func TestInstructions(t *testing.T) {
	got := instructions(`
/tmp/x:     file format elf64-x86-64

Disassembly of section .text:

00000000004997a0 <fmt.Println>:
  4997a0:	cmp    0x10(%r14),%rsp
  4997a4:	jbe    4997d8 <fmt.Println+0x38>
  4997a6:	vfmadd231ps %zmm27,%zmm24,%zmm0
`)
	want := []Instruction{{0x4997a0, "cmp 0x10(%r14),%rsp"}, {0x4997a4, "jbe 4997d8 <fmt.Println+0x38>"}, {0x4997a6, "vfmadd231ps %zmm27,%zmm24,%zmm0"}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestLoop checks which loop is listed.
func TestLoop(t *testing.T) {
	list := func(texts ...string) []Instruction {
		var l []Instruction
		for i, s := range texts {
			l = append(l, Instruction{uint64(0x10 + i), s})
		}
		return l
	}
	nested := list("mov", "mov", "add", "jne 12 <f+0x2>", "sub", "jl 0x11", "ret")
	for _, c := range []struct {
		what     string
		list     []Instruction
		spots    []Spot
		from, to uint64
	}{
		{"the inner loop", nested, []Spot{{Addr: 0x12, Samples: 9}, {Addr: 0x14, Samples: 1}}, 0x12, 0x13},
		{"half is enough", nested, []Spot{{Addr: 0x13, Samples: 5}, {Addr: 0x15, Samples: 5}}, 0x12, 0x13},
		{"the outer loop", nested, []Spot{{Addr: 0x12, Samples: 1}, {Addr: 0x14, Samples: 9}}, 0x11, 0x15},
		{"no loop", nested, []Spot{{Addr: 0x16, Samples: 9}}, 0x10, 0x16},
		{"forward jumps", list("jmp 12", "add", "ret"), []Spot{{Addr: 0x11, Samples: 1}}, 0x10, 0x12},
		{"arm64 b.ne", list("mov", "add", "b.ne 11 <f+0x4> // b.any"), []Spot{{Addr: 0x11, Samples: 1}}, 0x11, 0x12},
		{"arm64 cbnz", list("mov", "add", "cbnz x3, 11 <f+0x4>"), []Spot{{Addr: 0x11, Samples: 1}}, 0x11, 0x12},
		{"arm64 tbz", list("mov", "add", "tbz w3, #4, 11 <f+0x4>"), []Spot{{Addr: 0x11, Samples: 1}}, 0x11, 0x12},
		{"a call is no jump", list("mov", "add", "call 11 <f+0x4>"), []Spot{{Addr: 0x11, Samples: 1}}, 0x10, 0x12},
	} {
		got := loop(c.list, c.spots)
		if got[0].Addr != c.from || got[len(got)-1].Addr != c.to {
			t.Errorf("%s: %x to %x, want %x to %x", c.what, got[0].Addr, got[len(got)-1].Addr, c.from, c.to)
		}
	}
	if got := loop(nil, nil); got != nil {
		t.Errorf("no instructions: %v", got)
	}
}

// TestListing checks that the listing has the samples of the profile, at existing instructions.
func TestListing(t *testing.T) {
	self, p := processtest.Self(t), parsed(t)
	if _, err := exec.LookPath("objdump"); err != nil {
		t.Skip(err)
	}
	var out strings.Builder
	if err := p.WriteListing(&out, self); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if strings.Contains(text, "position-independent") || runtime.GOARCH != "amd64" && strings.Contains(text, "No instructions: objdump") {
		t.Skip(text)
	}
	m := regexp.MustCompile(`(?m)^(\d+) of (\d+) samples fell in attnlab/harness/profile\.burn\.\n(\d+) of these fell in the loop below, of \d+ of its \d+ instructions\.$`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no head:\n%s", text)
	}
	if !regexp.MustCompile(`(?m)^ +\. +[0-9a-f]+ +[a-z]`).MatchString(text) || !regexp.MustCompile(`div|fdiv`).MatchString(text) {
		t.Errorf("the division of the loop is not there:\n%s", text)
	}
	sum := 0
	for _, line := range regexp.MustCompile(`(?m)^ +(\d+) +[0-9a-f]+  `).FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(line[1])
		sum += n
	}
	if strconv.Itoa(sum) != m[3] {
		t.Errorf("the instructions have %d samples, the loop has %s:\n%s", sum, m[3], text)
	}
}

// TestListingWithoutInstructions checks that a listing without objdump, or of another program, says
// why and has source lines.
func TestListingWithoutInstructions(t *testing.T) {
	p := parsed(t)
	t.Setenv("PATH", "")
	strange := &Profile{Samples: 3, Spots: []Spot{{Addr: 1, Samples: 3, Function: "elsewhere", File: "/a/b.s", Line: 7}}}
	for what, c := range map[string]struct {
		p    *Profile
		want []string
	}{
		"no objdump":      {p, []string{"No instructions: objdump is not installed", "profile_test.go:"}},
		"another program": {strange, []string{"3 of 3 samples fell in elsewhere", "not those of this program", "3         1  b.s:7"}},
		"no samples":      {new(Profile), []string{"The profile has no samples."}},
	} {
		var out strings.Builder
		if err := c.p.WriteListing(&out, "program"); err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: %q is not in:\n%s", what, want, out.String())
			}
		}
	}
}
