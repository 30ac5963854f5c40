package nn

import "math"

// A CrossEntropy computes the loss of rows of logits, -mean over rows of log softmax(x)_target, and
// its gradient, (softmax(x) - onehot(target)) / rows. Rows with a negative target do not count.
type CrossEntropy struct {
	on      On
	dx      Mat
	rowLoss []float64
	x       Mat
	targets []int32
	counted int
	job     func(worker, task int)
}

// NewCrossEntropy allocates for rows rows of logits.
func NewCrossEntropy(on On, rows, classes int) *CrossEntropy {
	c := &CrossEntropy{on: on, dx: NewMat(rows, classes), rowLoss: make([]float64, rows)}
	c.job = c.rows
	return c
}

// Loss returns the loss, the number of rows whose target has the largest logit (the first of equal
// ones), and the gradient with respect to x. The gradient is valid until the next call.
func (c *CrossEntropy) Loss(x Mat, targets []int32) (loss float64, right int, dx Mat) {
	c.x, c.targets, c.counted = x, targets, 0
	for _, t := range targets {
		if t >= 0 {
			c.counted++
		}
	}
	c.on.Products.eachRow(x.Rows, c.job)
	for i, l := range c.rowLoss[:x.Rows] { // in the order of rows, on every team
		loss += l
		if targets[i] >= 0 && largest(x.Row(i)) == int(targets[i]) {
			right++
		}
	}
	return loss / float64(max(c.counted, 1)), right, c.dx.First(x.Rows)
}

// largest returns the index of the first largest element.
func largest(x []float32) (at int) {
	for j, v := range x {
		if v > x[at] {
			at = j
		}
	}
	return at
}

func (c *CrossEntropy) rows(_, task int) {
	for i, last := span(task, c.x.Rows); i < last; i++ {
		x, dx, target := c.x.Row(i), c.dx.Row(i), int(c.targets[i])
		if c.rowLoss[i] = 0; target < 0 {
			clear(dx)
			continue
		}
		top, sum := float64(x[largest(x)]), 0.0
		for _, v := range x {
			sum += math.Exp(float64(v) - top)
		}
		n := float64(c.counted)
		for j, v := range x {
			dx[j] = float32(math.Exp(float64(v)-top) / sum / n)
		}
		dx[target] = float32((math.Exp(float64(x[target])-top)/sum - 1) / n)
		c.rowLoss[i] = math.Log(sum) + top - float64(x[target])
	}
}
