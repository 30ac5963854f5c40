package tile

import (
	"encoding/binary"
	"unsafe"

	"attnlab/attn"
)

// bits hold one bit for each score of a block: whether band and bitmap show the row to the lane.
type bits struct {
	lanes int
	words []uint32 // [step/32][Lanes], as Edit.Bits
	at    []int    // [Lanes]: place in the bitmap of a lane's query and key 0
	step  int      // distance from one key or block of keys to the next; 0: all keys share a bit
}

func newBits(lanes, step int) bits {
	return bits{lanes: lanes, words: make([]uint32, lanes*step/32), at: make([]int, lanes)}
}

// put moves the bits to a tile's place.
func (s *bits) put(p *attn.Problem, a *attn.Args, l *place) {
	for lane := range l.width {
		_, i := l.query(min(lane, l.rows-1))
		if p.Mask.Bitmap == attn.BlockBitmap {
			i /= p.Mask.Block
		}
		s.at[lane], s.step = a.Allowed.Offset(l.b, i, l.head)
	}
}

// A view is how many of some rows the queries of a tile see.
type view int

const (
	none view = iota
	some
	all
)

// see fills words for the n rows that start at key, unless one view holds for all of them.
func (s *bits) see(p *attn.Problem, a *attn.Args, l *place, key, n int) view {
	if l.common.holds(span{key, key + n}) {
		if p.Mask.Bitmap == attn.NoBitmap {
			return all
		}
		side := p.Mask.Block
		oneBit := side != 0 && s.at[0] == s.at[l.width-1] && key/side == (key+n-1)/side
		if oneBit {
			if bit := s.at[0] + key/side*s.step; a.Allowed.Words[bit/64]>>(bit%64)&1 == 0 {
				return none
			}
			return all
		}
	}
	union, common := uint32(0), ^uint32(0)
	for j := 0; j < n; j += 32 {
		key, count := key+j, min(32, n-j)
		words := s.words[j/32*s.lanes:][:l.width]
		rest := ^interval(0, count)
		at, shown := -1, ^uint32(0)
		for lane := range words {
			word := interval(int(l.lo[lane])-key, min(int(l.hi[lane])-key, count))
			if p.Mask.Bitmap != attn.NoBitmap && word != 0 {
				if s.at[lane] != at { // neighbouring queries may share a row of the bitmap
					at = s.at[lane]
					shown = Shown(p, a, at, s.step, key, count)
				}
				word &= shown
			}
			words[lane] = word
			union |= word
			common &= word | rest
		}
	}
	switch {
	case union == 0:
		return none
	case common == ^uint32(0):
		return all
	}
	return some
}

// interval returns a word whose bits from <= i < to are set, as far as a word has them.
func interval(from, to int) uint32 {
	from, to = max(from, 0), min(to, 32)
	if from >= to {
		return 0
	}
	return ^uint32(0) << from & (^uint32(0) >> (32 - to))
}

// Shown returns a bit for each of n <= 32 keys starting at key: 1 if the bitmap shows it. at is
// where the query's row of the bitmap begins, and step is the distance from one element of it to
// the next.
func Shown(p *attn.Problem, a *attn.Args, at, step, key, n int) uint32 {
	m := &a.Allowed
	if p.Mask.Bitmap == attn.BlockBitmap {
		side, word := p.Mask.Block, uint32(0)
		for j := key; j < key+n; j += side - j%side {
			if bit := at + j/side*step; m.Words[bit/64]>>(bit%64)&1 != 0 {
				word |= interval(j-key, j-key+side-j%side)
			}
		}
		return word
	}
	if step == 0 { // all keys share one element
		if m.Bool != nil && m.Bool[at] || m.Words != nil && m.Words[at/64]>>(at%64)&1 != 0 {
			return ^uint32(0)
		}
		return 0
	}
	if p.Mask.Bitmap == attn.BoolBitmap {
		return wordOf(m.Bool[at+key:][:n])
	}
	bit := at + key
	word := m.Words[bit/64] >> (bit % 64)
	if bit%64+n > 64 {
		word |= m.Words[bit/64+1] << (64 - bit%64)
	}
	return uint32(word)
}

// wordOf returns a bit for each of at most 32 bools. One multiplication converts eight of them,
// which are bytes of 0 or 1. It moves the bit of byte i, the lowest first, to bit 56+i, and no two
// products overlap below.
func wordOf(show []bool) (word uint32) {
	const gather = 0x0102040810204080
	at := 0
	for ; at+8 <= len(show); at += 8 {
		eight := binary.LittleEndian.Uint64((*[8]byte)(unsafe.Pointer(&show[at]))[:])
		word |= uint32(eight*gather>>56) << at
	}
	for ; at < len(show); at++ {
		if show[at] {
			word |= 1 << at
		}
	}
	return word
}
