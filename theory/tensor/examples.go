package tensor

// An Example is an instructive contraction, with shapes for its operands.
type Example struct {
	Name, Spec, Meaning string
	Shapes              [][]int // of the operands
	Result              []int   // shape of the result
}

// Examples returns contractions from scalar products to the gradients of many heads. They include
// the spec of every named contraction and every feature of specs: implicit output, diagonals, sums
// of a single operand, three operands, numbers and marked indices.
func Examples() []Example {
	type shapes = [][]int
	return []Example{
		{"dot product", "a,a->", "u . v", shapes{{3}, {3}}, nil},
		{"outer product", "a,b->ab", "u v^T", shapes{{2}, {3}}, []int{2, 3}},
		{"elementwise product of vectors", "a,a->a", "a letter in the output is not summed, though it occurs twice", shapes{{3}, {3}}, []int{3}},
		{"sum", "a->", "a letter that the output lacks is summed, though it occurs once", shapes{{4}}, nil},
		{"scaling", ",ij->ij", "a number has no letters", shapes{{}, {2, 3}}, []int{2, 3}},

		{"transpose", "ij->ji", "M^T", shapes{{2, 3}}, []int{3, 2}},
		{"trace", "ii->", "sum of the diagonal", shapes{{3, 3}}, nil},
		{"diagonal", "ii->i", "a repeated letter walks the diagonal", shapes{{3, 3}}, []int{3}},
		{"sums of rows", "ij->i", "partition functions Z^i, of exp(S^ij)", shapes{{2, 4}}, []int{2}},
		{"sums of columns", "ij->j", "how much attention each key receives", shapes{{2, 4}}, []int{4}},
		{"sum of all", "ij->", "of every element", shapes{{2, 4}}, nil},
		{"matrix times vector", "ij,j->i", "M v", shapes{{2, 3}, {3}}, []int{2}},
		{"vector times matrix", "i,ij->j", "u M", shapes{{2}, {2, 3}}, []int{3}},
		{"matrix product", "ij,jk->ik", "A B", shapes{{2, 3}, {3, 4}}, []int{2, 4}},
		{"matrix product, implicit", "ij,jk", "letters that occur once, in alphabetical order: ik", shapes{{2, 3}, {3, 4}}, []int{2, 4}},
		{"transposed product, implicit", "jk,ij", "the order of operands is of no account, that of letters is: ik again", shapes{{3, 4}, {2, 3}}, []int{2, 4}},
		{"product of three", "ij,jk,kl->il", "A B C", shapes{{2, 3}, {3, 4}, {4, 2}}, []int{2, 2}},
		{"trace of a product", "ij,ji->", "tr(A B) = tr(B A)", shapes{{2, 3}, {3, 2}}, nil},
		{"square of the Frobenius norm", "ij,ij->", "given the same matrix twice", shapes{{2, 3}, {2, 3}}, nil},
		{"Hadamard product", "ij,ij->ij", "element by element", shapes{{2, 3}, {2, 3}}, []int{2, 3}},
		{"scaling of rows", "i,ij->ij", "diag(u) M: weights are exp(S) with rows scaled by 1/Z", shapes{{2}, {2, 3}}, []int{2, 3}},

		{"pairing", "_a,^a->", "u_a v^a, the same in every basis", shapes{{3}, {3}}, nil},
		{"lowering", "_ab,^b->_a", "v_a = g_ab v^b", shapes{{3, 3}, {3}}, []int{3}},
		{"inner product with a metric", "^a,_ab,^b->", "u^a g_ab v^b", shapes{{3}, {3, 3}, {3}}, nil},
		{"learned metric", "ca,cb->ab", "W^T W; with the first letters turned, ac,cb->ab, it is W W", shapes{{2, 3}, {2, 3}}, []int{3, 3}},
		{"bilinear form", "a,ab,b->", "u M v, of any shape", shapes{{2}, {2, 3}, {3}}, nil},
		{"bilinear forms", "ia,ab,jb->ij", "of every row with every row", shapes{{4, 2}, {2, 3}, {5, 3}}, []int{4, 5}},
		{"bilinear forms, row by row", "ia,ab,ib->i", "of each row with its like", shapes{{4, 2}, {2, 3}, {4, 3}}, []int{4}},

		{"attention scores", "ia,ja->ij", "Q K^T", shapes{{4, 2}, {5, 2}}, []int{4, 5}},
		{"attention output", "ij,jb->ib", "A V", shapes{{4, 5}, {5, 3}}, []int{4, 3}},
		{"gradient of values", "ij,ib->jb", "dV = A^T dO", shapes{{4, 5}, {4, 3}}, []int{5, 3}},
		{"gradient of weights", "ib,jb->ij", "dA = dO V^T", shapes{{4, 3}, {5, 3}}, []int{4, 5}},
		{"gradient of queries", "ij,ja->ia", "dQ = dS K, but for the scale", shapes{{4, 5}, {5, 2}}, []int{4, 2}},
		{"gradient of keys", "ij,ia->ja", "dK = dS^T Q, but for the scale", shapes{{4, 5}, {4, 2}}, []int{5, 2}},
		{"gradient of a metric", "ia,ij,jb->ab", "dM = Q^T dS K", shapes{{4, 2}, {4, 5}, {5, 3}}, []int{2, 3}},
		{"linear attention", "ia,ja,jb->ib", "without softmax the sum over a may come last", shapes{{4, 2}, {5, 2}, {5, 3}}, []int{4, 3}},
		{"state of linear attention", "ja,jb->ab", "the sum over keys, which comes first there", shapes{{5, 2}, {5, 3}}, []int{2, 3}},

		{"batched matrix product", "nij,njk->nik", "matrix by matrix", shapes{{2, 2, 3}, {2, 3, 4}}, []int{2, 2, 4}},
		{"batched scores", "nia,nja->nij", "of each batch entry", shapes{{2, 4, 2}, {2, 3, 2}}, []int{2, 4, 3}},
		{"batched output", "nij,njb->nib", "of each batch entry", shapes{{2, 4, 3}, {2, 3, 2}}, []int{2, 4, 2}},
		{"projection to heads", "ib,hba->hia", "Q^hia = X^ib W^hba", shapes{{4, 3}, {2, 3, 2}}, []int{2, 4, 2}},
		{"scores of heads", "hia,hja->hij", "h is in the output, and not summed", shapes{{2, 4, 2}, {2, 3, 2}}, []int{2, 4, 3}},
		{"outputs of heads", "hij,hjb->hib", "A^hij V^hjb", shapes{{2, 4, 3}, {2, 3, 2}}, []int{2, 4, 2}},
		{"joining of heads", "hic,hca->ia", "Y^ia = O^hic W^hca, a sum over h too", shapes{{2, 4, 2}, {2, 2, 3}}, []int{4, 3}},
		{"batched projection to heads", "nib,hba->nhia", "all batch entries share W", shapes{{2, 4, 3}, {2, 3, 2}}, []int{2, 2, 4, 2}},
		{"batched scores of heads", "nhia,nhja->nhij", "of each batch entry and head", shapes{{2, 2, 4, 2}, {2, 2, 3, 2}}, []int{2, 2, 4, 3}},
		{"change of layout", "nshd->nhsd", "sequence before head to head before sequence", shapes{{2, 3, 2, 2}}, []int{2, 2, 3, 2}},
	}
}
