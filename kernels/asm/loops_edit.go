//go:build (amd64 || arm64) && !purego

package asm

// editLoops are the assembly loops that change the scores of rows from..to.
type editLoops struct {
	cap   func(p *Edit, from, to int, scale float32)
	add   func(p *Edit, from, to int, scale, factor, rest, lowest float32)
	slope func(p *Edit, from, to int, scale float32)
	hide  func(p *Edit, from, to int) // from a multiple of 32, at most 32 rows
}

// setEdit replaces the portable loops by the set's own, with checks before them.
func (l *loops) setEdit(o *Ops) {
	if l.edits.cap != nil {
		o.Edit.Cap = l.capScores
	}
	if l.edits.add != nil {
		o.Edit.Add = l.addScores
	}
	if l.edits.slope != nil {
		o.Edit.Slope = l.slopeScores
	}
	if l.edits.hide != nil {
		o.Edit.Hide = l.hideScores
	}
}

func (l *loops) capScores(p *Edit) {
	l.checkPanel(&p.Panel)
	scale := float32(p.Scale)
	if !Normal(p.Scale) {
		capRows(p)
		return
	}
	for from := 0; from < p.N && p.Width > 0; from += expAtOnce {
		l.edits.cap(p, from, min(from+expAtOnce, p.N), scale)
	}
}

func (l *loops) addScores(p *Edit) {
	l.checkPanel(&p.Panel)
	reach("Bias", len(p.Bias), p.N, p.Width, p.Lanes)
	scale, factor := float32(p.Scale), float32(p.Factor)
	if !Normal(p.Scale) || !Normal(p.Factor) {
		addRows(p)
		return
	}
	rest := float32(p.Factor - float64(factor))
	for from := 0; from < p.N && p.Width > 0; from += expAtOnce {
		l.edits.add(p, from, min(from+expAtOnce, p.N), scale, factor, rest, p.lowest())
	}
}

func (l *loops) slopeScores(p *Edit) {
	l.checkPanel(&p.Panel)
	reach("SlopeHi", len(p.SlopeHi), 1, p.Width, 0)
	reach("SlopeLo", len(p.SlopeLo), 1, p.Width, 0)
	reach("Pos", len(p.Pos), 1, p.Width, 0)
	scale := float32(p.Scale)
	if !Normal(p.Scale) {
		slopeRows(p)
		return
	}
	for from := 0; from < p.N && p.Width > 0; from += expAtOnce {
		l.edits.slope(p, from, min(from+expAtOnce, p.N), scale)
	}
}

func (l *loops) hideScores(p *Edit) {
	l.checkPanel(&p.Panel)
	reach("Bits", len(p.Bits), (p.N+31)/32, p.Width, p.Lanes)
	for from := 0; from < p.N && p.Width > 0; from += 32 {
		l.edits.hide(p, from, min(from+32, p.N))
	}
}
