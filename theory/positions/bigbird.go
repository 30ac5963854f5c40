package positions

import (
	"math/rand/v2"

	"attnlab/attn"
)

// BigBird returns the mask of global, local and random keys. The first global keys are visible to
// all queries, and the first global queries see all keys. Other queries see the keys at most
// width/2 away, as in attn.GlobalLocal. Each query also sees random further keys, drawn evenly and
// without repetition from the keys that it does not see yet (or all of these if there are fewer). A
// path between any two positions is then short, although there are few pairs: two steps through a
// global key, or less by chance.
func BigBird(n, global, width, random int, r *rand.Rand) attn.Bits {
	sees := make([][]bool, n)
	for i := range sees {
		sees[i] = make([]bool, n)
		var rest []int
		for j := range n {
			sees[i][j] = i < global || j < global || max(i-j, j-i) <= width/2
			if !sees[i][j] {
				rest = append(rest, j)
			}
		}
		r.Shuffle(len(rest), func(x, y int) { rest[x], rest[y] = rest[y], rest[x] })
		for _, j := range rest[:min(random, len(rest))] {
			sees[i][j] = true
		}
	}
	return attn.Pack(n, n, func(i, j int) bool { return sees[i][j] })
}
