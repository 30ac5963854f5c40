//go:build (amd64 || arm64) && !purego

package asm

// probeLoops are the assembly loops that measure a machine.
type probeLoops struct {
	peak     func(rounds int, x *float32)
	perRound int // operations of a round of peak
	chain    func(rounds int)
	perChain int // additions of a round of chain
	slots    func(rounds int)
	perSlots int // instructions of a round of slots
	perRead  int // elements of a round of readingLoops.read and update
}

// setProbe replaces the portable probes by the set's own, which count rounds.
func (l *loops) setProbe(o *Ops, hint Hint) {
	of, reading := &l.probe, &l.reading[hint]
	if of.peak != nil {
		o.Probe.Peak = func(rounds int) int64 {
			for left := rounds; left > 0; left -= peakAtOnce {
				of.peak(min(left, peakAtOnce), &probe[0])
			}
			return int64(max(rounds, 0)) * int64(of.perRound)
		}
	}
	if of.chain != nil {
		o.Probe.Chain = func(rounds int) int64 {
			for left := rounds; left > 0; left -= chainAtOnce {
				of.chain(min(left, chainAtOnce))
			}
			return int64(max(rounds, 0)) * int64(of.perChain)
		}
	}
	if of.slots != nil {
		o.Probe.Slots = func(rounds int) int64 {
			for left := rounds; left > 0; left -= chainAtOnce {
				of.slots(min(left, chainAtOnce))
			}
			return int64(max(rounds, 0)) * int64(of.perSlots)
		}
	}
	if ahead := o.Tuning.Ahead; reading.read != nil {
		o.Probe.Read = func(x []float32) float32 {
			var sums [16]float32
			for len(x) >= of.perRead {
				rounds := min(len(x), readAtOnce) / of.perRead
				reading.read(&x[0], rounds, ahead, &sums[0])
				x = x[rounds*of.perRead:]
			}
			sum := read(x)
			for _, s := range sums {
				sum += s
			}
			return sum
		}
	}
	if ahead := o.Tuning.Ahead; reading.update != nil {
		o.Probe.Update = func(x []float32) {
			for len(x) >= of.perRead {
				rounds := min(len(x), readAtOnce) / of.perRead
				reading.update(&x[0], rounds, ahead)
				x = x[rounds*of.perRead:]
			}
			update(x)
		}
	}
}
