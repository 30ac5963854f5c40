package attn

import (
	"fmt"
	"sync/atomic"
)

// A Guard allows one call of a plan at a time, because calls share the plan's scratch. The zero
// Guard is ready to use. Forward and Backward begin with
//
//	defer pl.guard.Enter(name).Leave()
type Guard struct{ busy atomic.Bool }

// Enter marks the plan as in use. It panics if the plan is already in use.
func (g *Guard) Enter(kernel string) *Guard {
	if !g.busy.CompareAndSwap(false, true) {
		panic(fmt.Errorf("%s: the plan is in use by another call: a plan runs one call at a time, make a plan for each goroutine", kernel))
	}
	return g
}

// Leave ends the use that Enter began.
func (g *Guard) Leave() { g.busy.Store(false) }
