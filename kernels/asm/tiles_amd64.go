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
			rows:  amxPackRows, columns: amxPackColumns,
		},
		single: termLoops{
			score: []scoreLoop{amxScoreSingle1, amxScoreSingle2, amxScoreSingle3},
			flash: []flashLoop{amxFlashSingle1, amxFlashSingle2, amxFlashSingle3},
			mix:   []mixLoop{amxMixSingle1, amxMixSingle2, amxMixSingle3, amxMixSingle4},
			rows:  amxPackRowsSingle, columns: amxPackColumnsSingle,
		},
		hide:   []hideLoop{amxHideOutside1, amxHideOutside2, amxHideOutside3},
		dscore: []dscoreLoop{amxDScore1, amxDScore2, amxDScore3},
		outer: []outerTiles{
			{4, []outerTilesLoop{amxOuter4x1, amxOuter4x2, amxOuter4x3}},
			{2, []outerTilesLoop{amxOuter2x1, amxOuter2x2, amxOuter2x3}},
			{1, []outerTilesLoop{amxOuter1x1, amxOuter1x2, amxOuter1x3}},
		},
		lanes: amxPackLanes, lines: [...]packLoop{amxPackLines, amxPackLinePairs}, peak: amxPeak,
	}
	return l
}()
