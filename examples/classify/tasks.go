package main

import (
	"hash"
	"hash/fnv"
	"math/rand/v2"
	"strings"

	"attnlab/attn"
)

// A task draws random sequences of letters, each with its class.
type task struct {
	letters string
	classes []string
	length  int       // default length of a sequence
	mask    attn.Mask // the keys that a position attends to
	draw    func(r *rand.Rand, x []int32) (class int32)
}

// tasks are the tasks by name. Brackets are counted best under a causal mask.
var tasks = map[string]*task{
	"majority": {letters: "abcd", classes: []string{"a", "b", "c", "d"}, length: 32, draw: majority},
	"first":    {letters: "abcdefgh", classes: strings.Split("abcdefgh", ""), length: 32, draw: first},
	"brackets": {letters: "()", classes: []string{"unbalanced", "balanced"}, length: 24, mask: attn.Causal(), draw: brackets},
}

// taskNames lists the tasks from the easiest to the hardest.
var taskNames = []string{"majority", "first", "brackets"}

// letter returns one of n letters at random.
func letter(r *rand.Rand, n int) int32 { return int32(r.IntN(n)) }

// majority draws letters of which one is more frequent than any other. That letter is the class.
func majority(r *rand.Rand, x []int32) int32 {
	for {
		var counts [4]int
		for i := range x {
			x[i] = letter(r, len(counts))
			counts[x[i]]++
		}
		best, ties := 0, 0
		for c, n := range counts {
			switch {
			case n > counts[best]:
				best, ties = c, 0
			case n == counts[best] && c != best:
				ties++
			}
		}
		if ties == 0 {
			return int32(best)
		}
	}
}

// first draws random letters. The first one is the class.
func first(r *rand.Rand, x []int32) int32 {
	for i := range x {
		x[i] = letter(r, 8)
	}
	return x[0]
}

// Letters of brackets.
const (
	opening = 0
	closing = 1
)

// brackets draws a balanced sequence half of the time. An unbalanced one is close to balanced: it
// has as many opening as closing brackets in random order, or two brackets of a balanced sequence
// are swapped, or one is flipped.
func brackets(r *rand.Rand, x []int32) int32 {
	class := letter(r, 2)
	for {
		switch kind := r.IntN(3); {
		case class == 1:
			nest(r, x)
		case kind == 0:
			for i := range x {
				x[i] = int32(i % 2)
			}
			r.Shuffle(len(x), func(i, j int) { x[i], x[j] = x[j], x[i] })
		case kind == 1:
			nest(r, x)
			i, j := r.IntN(len(x)), r.IntN(len(x))
			x[i], x[j] = x[j], x[i]
		default:
			nest(r, x)
			x[r.IntN(len(x))] ^= 1
		}
		if balanced(x) == (class == 1) {
			return class
		}
	}
}

// nest draws balanced brackets uniformly. Of the continuations that return from depth h to depth 0
// in n brackets, the fraction
//
//	(n-h) (h+2) / (2 n (h+1))
//
// begins with an opening bracket.
func nest(r *rand.Rand, x []int32) {
	depth := 0
	for i := range x {
		left := len(x) - i
		if r.IntN(2*left*(depth+1)) < (left-depth)*(depth+2) {
			x[i] = opening
			depth++
		} else {
			x[i] = closing
			depth--
		}
	}
}

// balanced reports whether every closing bracket has an opening one before it, and none is left
// open.
func balanced(x []int32) bool {
	depth := 0
	for _, b := range x {
		if b == opening {
			depth++
		} else {
			depth--
		}
		if depth < 0 {
			return false
		}
	}
	return depth == 0
}

// data draws the batches of a task. A hash of the sequence holds out one sequence in eight.
// Held-out sequences are in no training batch, and the test at the end uses no others.
type data struct {
	*task
	length int
	seed   uint64
	source *rand.PCG
	rand   *rand.Rand
	hash   hash.Hash64
	bytes  []byte
}

func newData(t *task, length int, seed uint64) *data {
	d := &data{task: t, length: length, seed: seed, source: new(rand.PCG), hash: fnv.New64a(), bytes: make([]byte, length)}
	d.rand = rand.New(d.source)
	return d
}

// train draws the batch of a training step.
func (d *data) train(step int64, tokens, classes []int32) {
	d.source.Seed(d.seed, uint64(step))
	d.fill(tokens, classes, false)
}

// ask draws a batch of held-out sequences.
func (d *data) ask(batch int, tokens, classes []int32) {
	d.source.Seed(^d.seed, uint64(batch))
	d.fill(tokens, classes, true)
}

// fill draws a batch of sequences, all of them held out or none.
func (d *data) fill(tokens, classes []int32, held bool) {
	for b := range classes {
		x := tokens[b*d.length:][:d.length]
		for classes[b] = d.draw(d.rand, x); d.heldOut(x) != held; {
			classes[b] = d.draw(d.rand, x)
		}
	}
}

// heldOut reports whether a sequence is held out.
func (d *data) heldOut(x []int32) bool {
	for i, t := range x {
		d.bytes[i] = byte(t)
	}
	d.hash.Reset()
	_, _ = d.hash.Write(d.bytes)
	return d.hash.Sum64()>>61 == 0
}

// write returns a sequence as text.
func (t *task) write(x []int32) string {
	var s strings.Builder
	for _, i := range x {
		s.WriteByte(t.letters[i])
	}
	return s.String()
}
