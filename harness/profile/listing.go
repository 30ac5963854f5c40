package profile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
)

// An Instruction is one line of a disassembly.
type Instruction struct {
	Addr uint64
	Text string
}

// Disassemble lists the instructions of a program in a range of addresses. It needs GNU objdump,
// since Go's objdump reads neither AVX-512 nor the programs without symbols that go run builds.
func Disassemble(program string, from, to uint64) ([]Instruction, error) {
	objdump, err := exec.LookPath("objdump")
	if err != nil {
		return nil, errors.New("objdump is not installed (on Debian: apt-get install binutils)")
	}
	out, err := exec.Command(objdump, "--disassemble", "--no-show-raw-insn", fmt.Sprintf("--start-address=%#x", from), fmt.Sprintf("--stop-address=%#x", to), program).Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) && len(exit.Stderr) > 0 {
		err = errors.New(strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return nil, fmt.Errorf("objdump: %w", err)
	}
	return instructions(string(out)), nil
}

// instructions returns the lines of objdump's output that have an address, a colon and a text.
func instructions(out string) []Instruction {
	var list []Instruction
	for line := range strings.Lines(out) {
		head, text, ok := strings.Cut(line, ":\t")
		addr, err := strconv.ParseUint(strings.TrimSpace(head), 16, 64)
		if ok && err == nil {
			list = append(list, Instruction{addr, strings.Join(strings.Fields(text), " ")})
		}
	}
	return list
}

// jump matches a jump to an address, on amd64 or arm64, as objdump writes it.
var jump = regexp.MustCompile(`^(?:j[a-z]+|b|b\.[a-z]+|cbn?z [wx]\d+,|tbn?z [wx]\d+, #\d+,) (?:0x)?([0-9a-f]+)(?: |$)`)

// loop returns the innermost loop with at least half of the samples: the instructions from the
// target of a backward jump to the jump. It returns all instructions if there is none.
func loop(list []Instruction, spots []Spot) []Instruction {
	if len(list) == 0 {
		return nil
	}
	all := within(spots, list)
	best := list
	for i, in := range list {
		m := jump.FindStringSubmatch(in.Text)
		if m == nil {
			continue
		}
		target, err := strconv.ParseUint(m[1], 16, 64)
		if err != nil {
			continue
		}
		for k := i; k >= 0 && list[k].Addr >= target; k-- {
			if body := list[k : i+1]; list[k].Addr == target && len(body) < len(best) && 2*within(spots, body) >= all {
				best = body
			}
		}
	}
	return best
}

// within counts the samples at instructions.
func within(spots []Spot, list []Instruction) (n int64) {
	for _, s := range spots {
		if s.Addr >= list[0].Addr && s.Addr <= list[len(list)-1].Addr {
			n += s.Samples
		}
	}
	return n
}

// WriteListing writes the hottest loop of a profile of this program, with the samples at each
// instruction. Without a disassembly it says why, and writes source lines instead.
func (p *Profile) WriteListing(w io.Writer, program string) error {
	out := bufio.NewWriter(w)
	function, n := p.Hottest()
	if n == 0 {
		fmt.Fprintln(out, "The profile has no samples.")
		return out.Flush()
	}
	fmt.Fprintf(out, "%d of %d samples fell in %s.\n", n, p.Samples, function)
	var spots []Spot
	for _, s := range p.Spots {
		if s.Function == function {
			spots = append(spots, s)
		}
	}
	list, err := disassembly(program, function, spots[0].Addr)
	if err != nil {
		fmt.Fprintf(out, "No instructions: %v.\n\n", err)
		writeLines(out, spots)
		return out.Flush()
	}
	body := loop(list, spots)
	if len(body) < len(list) {
		fmt.Fprintf(out, "%d of these fell in the loop below, of %d of its %d instructions.\n", within(spots, body), len(body), len(list))
	}
	writeInstructions(out, body, spots)
	return out.Flush()
}

// disassembly returns the instructions of a function of this program, which has the address addr.
func disassembly(program, function string, addr uint64) ([]Instruction, error) {
	from, to, ok := extent(function, addr)
	if !ok {
		return nil, errors.New("the profile's addresses are not those of this program, which may be position-independent")
	}
	list, err := Disassemble(program, from, to)
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("objdump finds nothing at %#x", from)
	}
	return list, err
}

// extent returns the addresses of a function in the memory of this process.
func extent(function string, addr uint64) (from, to uint64, ok bool) {
	f := runtime.FuncForPC(uintptr(addr))
	if f == nil {
		return 0, 0, false
	}
	entry := f.Entry()
	if runtime.FuncForPC(entry).Name() != function { // f itself may be an inlined function
		return 0, 0, false
	}
	end := uintptr(addr)
	for {
		end++
		if f := runtime.FuncForPC(end); f == nil || f.Entry() != entry {
			return uint64(entry), uint64(end), true
		}
	}
}

// writeInstructions writes each instruction with its samples.
func writeInstructions(out io.Writer, list []Instruction, spots []Spot) {
	at := map[uint64]int64{}
	for _, s := range spots {
		at[s.Addr] += s.Samples
	}
	fmt.Fprint(out, "\nsamples   address  instruction\n")
	for _, in := range list {
		count := "."
		if n := at[in.Addr]; n > 0 {
			count = strconv.FormatInt(n, 10)
		}
		fmt.Fprintf(out, "%7s  %8x  %s\n", count, in.Addr, in.Text)
	}
}

// writeLines writes the samples at each address with its source line, which is the instruction
// itself in assembly.
func writeLines(out io.Writer, spots []Spot) {
	fmt.Fprint(out, "samples   address  line\n")
	for _, s := range spots {
		fmt.Fprintf(out, "%7d  %8x  %s:%d\n", s.Samples, s.Addr, filepath.Base(s.File), s.Line)
	}
}
