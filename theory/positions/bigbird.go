package positions

import (
	"math/rand/v2"

	"attnlab/attn"
)

// BigBird is the mask of global, local and random keys: the first global keys are for all queries
// and the first global queries see all keys, others see the keys at most width/2 away, as in
// attn.GlobalLocal, and so many keys besides, drawn evenly and without repetition from those that
// the query does not see already (all of them where fewer are left). A path between any two
// positions is then short, with few pairs: through a global key in two steps, or by chance.
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
