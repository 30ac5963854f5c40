package attn

import (
	"errors"
	"fmt"
)

// Append stores rows of k and v behind the keys in use of each batch entry, and adds their number
// to KLen. Both have shape [batch, row, key head, dim]. Rows are rounded to the cache's type.
// Append changes nothing if it returns an error.
//
// A page that two batch entries share is written for both. If entries share the beginning of a
// cache, give each its own copy of the last page before Append.
func (p *Problem) Append(a *Args, k, v *Tensor) error {
	if !p.Lengths || a.KLen == nil {
		return errors.New("append: the cache has no KLen: set Lengths in the problem, and KLen to the keys in use")
	}
	if k == nil || v == nil {
		return errors.New("append: k, v: nil")
	}
	if err := p.checkKeys(a); err != nil {
		return fmt.Errorf("append: %w", err)
	}
	for _, o := range [...]struct {
		name, cache string // constants: joining texts would allocate in every step of a decoder
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
			return fmt.Errorf("append: %d rows behind %d keys in use do not fit the %d of batch entry %d", k.S, n, room, b)
		}
		for s := range k.S {
			if at, row := a.KRow(p, b, n+s); at < 0 || at >= a.K.B || row >= a.K.S || at >= a.V.B || row >= a.V.S {
				return fmt.Errorf("append: key %d of batch entry %d belongs in row %d of page %d, which a pool of %d pages does not have", n+s, b, row, at, a.K.B)
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

// checkKeys checks the operands that locate and count the keys of each batch entry.
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
