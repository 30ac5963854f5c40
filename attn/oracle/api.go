// Package oracle is the definition of attention in float64, one row at a time, with the tolerance that float32 arithmetic is entitled to
// accumulated beside it, and the judge that compares a kernel's answer with both.
package oracle

import "attnlab/attn"

// An Index is one query row of a call.
type Index struct{ B, H, I int }

// A Row is the definition's answer for one query row, with the error that float32 arithmetic may leave in each number.
type Row struct {
	Visible             int // keys the masks show
	Out, TolOut         []float64
	LSE, TolLSE         float64
	Mean, TolMean       float64
	Entropy, TolEntropy float64
	Weights, TolWeights []float64 // by key, 0 for hidden ones; softmax only
}

// An Oracle answers for the rows of one call. It is used by one goroutine at a time.
type Oracle struct {
	p attn.Problem
	a *attn.Args
}

// New prepares to answer for a call. The operands must not change while the oracle is in use.
func New(p attn.Problem, a *attn.Args) (*Oracle, error) { panic("being written") }

// Row answers for one row. The result is overwritten by the next call.
func (o *Oracle) Row(at Index) *Row { panic("being written") }

// A Verdict is the outcome of a comparison.
type Verdict struct {
	Rows  int     // compared
	Worst float64 // largest |error| / tolerance; +Inf where a NaN, an infinity or an exact value differs. Right means Worst <= 1
	Where string  // the number with the largest ratio: operand, index, got, want, tolerance
}

// Judge compares a.Out, and every member of a.Stats that is set, with the definition in the given rows.
func (o *Oracle) Judge(rows []Index) Verdict { panic("being written") }

// All lists every row of a call.
func All(p *attn.Problem, a *attn.Args) []Index { panic("being written") }

// Sample picks n rows, spread over the call: the first and the last of every head and batch it meets, and random ones from seed.
func Sample(p *attn.Problem, a *attn.Args, n int, seed uint64) []Index { panic("being written") }
