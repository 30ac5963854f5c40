package oracle

import (
	"fmt"

	"attnlab/attn"
)

// A definition is an operation as the oracle knows it.
type definition struct {
	// row answers for a row: it fills o.row, in which all is zero but Visible, from the keys in
	// o.keys.
	row func(o *Oracle, at Index)
	// gradient adds what a row gives to the gradients of keys, values and terms, and returns that
	// of its query.
	gradient func(j *gradients, at Index) estimates
	// key takes the gradient of a key as it meets queries to the key as it is stored. at.I is the
	// key, at.H its head.
	key func(j *gradients, at Index, dk estimates)
}

// definitions is the table of the definition and the gradient of each operation.
var definitions = [...]definition{
	attn.OpSoftmax: {(*Oracle).softmax, (*gradients).softmaxRow, (*gradients).softmaxKey},
	attn.OpLinear:  {(*Oracle).linear, (*gradients).linearRow, (*gradients).linearKey},
}

// define returns the definition of an operation.
func define(op attn.Op) (definition, error) {
	var d definition
	if int(op) < len(definitions) {
		d = definitions[op]
	}
	if d.row == nil || d.gradient == nil || d.key == nil {
		return d, fmt.Errorf("the oracle has no definition of op %v with its gradient: add it to the table of package oracle", op)
	}
	return d, nil
}
