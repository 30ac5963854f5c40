// Package nn is what is built from attention: layers with parameters that are trained, and the products between them.
//
// A Layer is parameters and a Plan: planned for one shape of input it gives a Pass, which runs forward and backward without allocating. Layers are put together
// by Chain, Residual and Gated; a block of a transformer, its norms first, is
//
//	Chain{Residual{Chain{norm, attention}}, Residual{Chain{norm, Chain{linear, GELU, linear}}}}
//
// Activations are matrices whose rows are sequences one after another. Matrix products run on the loops of an instruction set (Multiplier), attention through
// any kernel: both are arguments (On), as is the team that shares the work. Whatever that team, the bits are the same.
package nn
