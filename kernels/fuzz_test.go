package kernels_test

import (
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"attnlab/attn"
	"attnlab/kernels"
	"attnlab/kernels/asm"
)

var fuzzSet = flag.String("set", "", "the instruction set whose kernels FuzzProblems runs, such as avx2; default: the best of this machine")

// FuzzProblems holds the kernels of one instruction set to the definition on random problems,
// guided by coverage. Its seeds and its corpus, in testdata, run as a test:
//
//	go test -run '^$' -fuzz Problems -fuzzminimizetime 1x ./kernels -set avx2
func FuzzProblems(f *testing.F) {
	for seed := range uint64(longSeeds) {
		f.Add(words(seed, 256))
	}
	all := fuzzed(f)
	f.Fuzz(func(t *testing.T, input []byte) {
		rapid.MakeFuzz(func(t *rapid.T) {
			if c := randomProblem(t); c != nil {
				c.judge(t, all)
			}
		})(t, endless(input))
	})
}

// longSeeds is the number of seeds besides the corpus.
const longSeeds = 16

// fuzzed returns naive and the kernels of the chosen set.
func fuzzed(t testing.TB) (all []attn.Kernel) {
	set := *fuzzSet
	for _, l := range asm.Levels() {
		if *fuzzSet == "" && l.Available {
			set = l.ISA
		} else if *fuzzSet == l.ISA && !l.Available {
			t.Skipf("SKIPPED: %s: %s", l.ISA, l.Reason)
		}
	}
	for _, k := range slices.Concat(kernels.All(), always) {
		if algo, isa := k.Name(); isa == set || algo == "naive" {
			all = append(all, k)
		}
	}
	if len(all) < 2 {
		t.Fatalf("-set %s: no kernel has such a set", set)
	}
	return all
}

// words returns n random numbers of 64 bits.
func words(seed uint64, n int) (all []byte) {
	r := rand.New(rand.NewPCG(seed, 1))
	for range n {
		all = binary.LittleEndian.AppendUint64(all, r.Uint64())
	}
	return all
}

// endless returns the input followed by random numbers. A problem draws some hundred numbers, and
// an input that ends earlier would be thrown away. The random numbers depend on the first eight
// bytes alone, so that a change of a later byte changes one choice and not all that follow.
func endless(input []byte) []byte {
	whole := append(slices.Clone(input), make([]byte, max(8, (len(input)+7)&^7)-len(input))...)
	return append(whole, words(binary.LittleEndian.Uint64(whole), 1<<14)...)
}

// TestFuzzReachesKernels checks that at least four of five inputs of FuzzProblems become a problem
// that kernels support: random inputs, long and short, and every input of the corpus.
func TestFuzzReachesKernels(t *testing.T) {
	reaches := func(input []byte) (reached bool) {
		t.Run("", func(t *testing.T) { // rapid skips the test of an input that ends too soon
			rapid.MakeFuzz(func(t *rapid.T) { reached = randomProblem(t) != nil })(t, endless(input))
		})
		return reached
	}
	random, reached := 400, 0
	if testing.Short() {
		random = 100
	}
	for seed := range uint64(random) {
		input := words(seed, 512)
		if reaches(input[:seed*37%uint64(len(input))]) {
			reached++
		}
	}
	if reached*5 < random*4 {
		t.Errorf("%d of %d random inputs reach a kernel, want 4 of 5", reached, random)
	}
	t.Logf("%d of %d random inputs reach a kernel", reached, random)

	files, err := filepath.Glob("testdata/fuzz/FuzzProblems/*")
	if err != nil || len(files) < 24 {
		t.Fatalf("%d files in the corpus, want 24 or more (%v)", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, quoted, _ := strings.Cut(string(text), "[]byte(")
		input, err := strconv.Unquote(strings.TrimSuffix(strings.TrimSpace(quoted), ")"))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if !reaches([]byte(input)) {
			t.Errorf("%s does not reach a kernel: remove it", file)
		}
	}
}
