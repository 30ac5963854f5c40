//go:build !purego

package asm

// amx is avx512 with products of AMX tiles.
var amx = func() loops {
	l := avx512
	l.isa, l.powers = "amx", l.powers[len(l.powers)-1:]
	l.tiles = &tileLoops{
		all: termLoops{
			score: []scoreLoop{amxScore1, amxScore2, amxScore3},
			flash: []flashLoop{amxFlash1, amxFlash2, amxFlash3},
			mix:   []mixLoop{amxMix1, amxMix2, amxMix3, amxMix4},
			rows:  amxCutRows, columns: amxCutColumns,
		},
		single: termLoops{
			score: []scoreLoop{amxScoreHalf1, amxScoreHalf2, amxScoreHalf3},
			flash: []flashLoop{amxFlashHalf1, amxFlashHalf2, amxFlashHalf3},
			mix:   []mixLoop{amxMixHalf1, amxMixHalf2, amxMixHalf3, amxMixHalf4},
			rows:  amxCutRowsHalf, columns: amxCutColumnsHalf,
		},
		hide:   []hideLoop{amxHideOutside1, amxHideOutside2, amxHideOutside3},
		dscore: []dscoreLoop{amxDScore1, amxDScore2, amxDScore3},
		outer: []outerTiles{
			{4, []outerTilesLoop{amxOuter4x1, amxOuter4x2, amxOuter4x3}},
			{2, []outerTilesLoop{amxOuter2x1, amxOuter2x2, amxOuter2x3}},
			{1, []outerTilesLoop{amxOuter1x1, amxOuter1x2, amxOuter1x3}},
		},
		pairs: amxCutPairs, lines: [...]packLoop{amxCutLines, amxCutLinePairs}, peak: amxPeak,
	}
	return l
}()
