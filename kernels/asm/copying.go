package asm

import "unsafe"

// Copying returns the simplest packing, for tests of kernels on machines whose sets have none. Its
// blocks of keys, values and lines are copies of their rows, which portable loops read. Each number
// takes the memory of three bf16 terms, and packing always pays.
func Copying() Pack {
	rows := func(to *packed, n, d int) {
		if n*d == 0 {
			return
		}
		all := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(to.terms))), len(to.terms)/2)
		for j := range n {
			copy(all[j*d:][:d], to.rows.Row(j, d))
		}
		to.rows = Rows{Data: all, Stride: d}
	}
	return Pack{
		worth: func(Pass, int, int, int) bool { return true },
		size: func(kind Kind, n, d int) int {
			size := (3*n*d + 1) / 2
			if kind == Values {
				size += n * d
			}
			return size
		},
		keys:    func(to *KeyBlock, n, d int, _ Form) { rows(&to.packed, n, d) },
		values:  func(to *ValueBlock, n, d int, _ Form) { rows(&to.packed, n, d) },
		lines:   func(to *LineBlock, n, d int, _ Form) { rows(&to.packed, n, d) },
		queries: func(*QueryTile, int, int, float64, Form) {}, // lanes are copies already
	}
}

// Watched returns the packing with made called for each block that is packed, for tests. A packing
// that aliases rows packs none.
func (p Pack) Watched(made func(Kind)) Pack {
	if p.worth == nil {
		return p
	}
	keys, values, lines, queries := p.keys, p.values, p.lines, p.queries
	p.keys = func(to *KeyBlock, n, d int, f Form) { made(Keys); keys(to, n, d, f) }
	p.values = func(to *ValueBlock, n, d int, f Form) { made(Values); values(to, n, d, f) }
	p.lines = func(to *LineBlock, n, d int, f Form) { made(Lines); lines(to, n, d, f) }
	p.queries = func(to *QueryTile, width, d int, factor float64, f Form) {
		made(Queries)
		queries(to, width, d, factor, f)
	}
	return p
}
