package oracle

import (
	"fmt"

	"attnlab/attn"
)

// A definition is an operation as the oracle computes it.
type definition struct {
	// row computes a row from the keys in o.keys and fills o.row. All of o.row but Visible is zero
	// before.
	row func(o *Oracle, at Index)
	// gradient adds a row's contributions to the gradients of keys, values and terms, and returns
	// the gradient of its query.
	gradient func(j *gradients, at Index) estimates
	// key converts the gradient of a key from the form that queries multiply to the stored form: it
	// reverses the rotation or the feature map. at.I is the key, at.H its head.
	key func(j *gradients, at Index, dk estimates)
}

// definitions is the table of all operations, indexed by Op.
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
