//go:build (amd64 || arm64) && !purego

package asm

// editLoops are the assembly loops that change scores, for rows from one to another.
type editLoops struct {
	cap   func(p *Panel, from, to int, scale float32)
	add   func(p *Panel, from, to int, scale, factor, rest, lowest float32)
	slope func(p *Panel, from, to int, scale float32)
	hide  func(p *Panel, from, to int) // from a multiple of 32, at most 32 rows
}

// editing puts the checks before the loops that change scores.
func (l *loops) editing(o *Ops) {
	if l.edits.cap != nil {
		o.Cap = func(p *Panel) {
			l.checkWeights(p)
			scale := float32(p.Edit.Scale)
			if !Normal(p.Edit.Scale) {
				capRows(p)
				return
			}
			for from := 0; from < p.N && p.Width > 0; from += expAtOnce {
				l.edits.cap(p, from, min(from+expAtOnce, p.N), scale)
			}
		}
	}
	if l.edits.add != nil {
		o.Add = func(p *Panel) {
			l.checkWeights(p)
			reach("Edit.Add", len(p.Edit.Add), p.N, p.Width, p.Lanes)
			scale, factor := float32(p.Edit.Scale), float32(p.Edit.Factor)
			if !Normal(p.Edit.Scale) || !Normal(p.Edit.Factor) {
				addRows(p)
				return
			}
			rest := float32(p.Edit.Factor - float64(factor))
			for from := 0; from < p.N && p.Width > 0; from += expAtOnce {
				l.edits.add(p, from, min(from+expAtOnce, p.N), scale, factor, rest, p.Edit.lowest())
			}
		}
	}
	if l.edits.slope != nil {
		o.Slope = func(p *Panel) {
			l.checkWeights(p)
			reach("Edit.SlopeHi", len(p.Edit.SlopeHi), 1, p.Width, 0)
			reach("Edit.SlopeLo", len(p.Edit.SlopeLo), 1, p.Width, 0)
			reach("Edit.Pos", len(p.Edit.Pos), 1, p.Width, 0)
			scale := float32(p.Edit.Scale)
			if !Normal(p.Edit.Scale) {
				slopeRows(p)
				return
			}
			for from := 0; from < p.N && p.Width > 0; from += expAtOnce {
				l.edits.slope(p, from, min(from+expAtOnce, p.N), scale)
			}
		}
	}
	if l.edits.hide != nil {
		o.Hide = func(p *Panel) {
			l.checkWeights(p)
			reach("Edit.Bits", len(p.Edit.Bits), (p.N+31)/32, p.Width, p.Lanes)
			for from := 0; from < p.N && p.Width > 0; from += 32 {
				l.edits.hide(p, from, min(from+32, p.N))
			}
		}
	}
}

// checkWeights panics if P does not hold the panel's rows.
func (l *loops) checkWeights(p *Panel) {
	l.checkWidth(p)
	reach("P", len(p.P), p.N, p.Width, p.Lanes)
}
