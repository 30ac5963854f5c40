package attn

import (
	"errors"
	"fmt"
)

// Append stores rows of k and v, of shape [batch, row, key head, dim], in the cache that a call
// reads, behind the keys in use of each batch entry, and counts them in KLen. Rows are rounded to
// the cache's type. It changes nothing if it returns an error. A page that two batch entries share
// is written for both: who shares the beginning of a cache gives each its own last page first.
func (p *Problem) Append(a *Args, k, v *Tensor) error {
	if !p.Lengths || a.KLen == nil {
		return fmt.Errorf("append: the cache has no KLen: the problem must say Lengths, and the call how many keys are in use")
	}
	if k == nil || v == nil {
		return errors.New("append: k, v: nil")
	}
	if err := p.checkKeys(a); err != nil {
		return fmt.Errorf("append: %w", err)
	}
	for _, o := range [...]struct {
		name, cache string // whole, since texts put together would be allocated in every step of a decoder
		rows, own   *Tensor
		d           int
	}{{"append: k", "append: the cache of k", k, &a.K, p.Dim}, {"append: v", "append: the cache of v", v, &a.V, p.DimV}} {
		if err := o.rows.fits(o.name, F32, p.Batch, k.S, p.HeadsKV, o.d); err != nil {
			return err
		}
		if err := o.own.fits(o.cache, p.KV, o.own.B, o.own.S, p.HeadsKV, o.d); err != nil {
			return err
		}
		if err := o.own.writable(o.cache); err != nil {
			return err
		}
	}
	for b := range p.Batch {
		n, room := int(a.KLen[b]), a.room(p, b)
		if k.S > room-n {
			return fmt.Errorf("append: %d rows behind %d do not fit the %d of batch entry %d", k.S, n, room, b)
		}
		for s := range k.S {
			if at, row := a.KRow(p, b, n+s); at < 0 || at >= a.K.B || row >= a.K.S || at >= a.V.B || row >= a.V.S {
				return fmt.Errorf("append: key %d of batch entry %d is to lie in row %d of page %d, in a pool of %d pages", n+s, b, row, at, a.K.B)
			}
		}
	}
	for b := range p.Batch {
		for s := range k.S {
			at, row := a.KRow(p, b, int(a.KLen[b])+s)
			for h := range p.HeadsKV {
				a.K.Write(k.Row(b, s, h), at, row, h)
				a.V.Write(v.Row(b, s, h), at, row, h)
			}
		}
		a.KLen[b] += int32(k.S)
	}
	return nil
}

// checkKeys says what is wrong with where the keys of each batch entry lie, and with how many they
// are.
func (p *Problem) checkKeys(a *Args) error {
	var err error
	switch {
	case p.Page != 0:
		err = p.checkTable(a)
	case p.Ragged:
		err = starts("KStart", a.KStart, p.Batch, a.K.S, p.SeqKV)
	}
	if err != nil {
		return err
	}
	return p.checkLengths(a)
}
