//go:build !purego

package asm

// amx is avx512 with products of tiles, as Intel's CPUs have them.
var amx = func() loops {
	l := avx512
	l.isa, l.powers = "amx", l.powers[len(l.powers)-1:]
	l.chain, l.slots = amxChain, amxSlots
	l.tiles = &tileLoops{
		all: partLoops{
			score: []func(q, k *uint16, p *float32, groups, steps int, config *tileConfig){amxScore1, amxScore2, amxScore3},
			flash: []func(q, k *uint16, p, m, l *float32, groups, steps int, config *tileConfig, next uintptr, by int, lo, hi *int32, key, hidden int) (done int){
				amxFlash1, amxFlash2, amxFlash3,
			},
			mix: []func(v *uint16, p, o, keep *float32, rows, by, columns, fresh int, config *tileConfig){
				amxMix1, amxMix2, amxMix3, amxMix4,
			},
			rows: amxCutRows, columns: amxCutColumns,
		},
		single: partLoops{
			score: []func(q, k *uint16, p *float32, groups, steps int, config *tileConfig){amxScoreBF161, amxScoreBF162, amxScoreBF163},
			flash: []func(q, k *uint16, p, m, l *float32, groups, steps int, config *tileConfig, next uintptr, by int, lo, hi *int32, key, hidden int) (done int){
				amxFlashBF161, amxFlashBF162, amxFlashBF163,
			},
			mix: []func(v *uint16, p, o, keep *float32, rows, by, columns, fresh int, config *tileConfig){
				amxMixBF161, amxMixBF162, amxMixBF163, amxMixBF164,
			},
			rows: amxCutRowsBF16, columns: amxCutColumnsBF16,
		},
		hide:  []func(p *float32, lo, hi *int32, key, rows int){amxHideOutside1, amxHideOutside2, amxHideOutside3},
		pairs: amxCutPairs, peak: amxPeak,
	}
	return l
}()
