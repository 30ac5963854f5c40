package verify

import (
	"errors"
	"fmt"
	"math"

	"attnlab/attn"
)

// A Finding is the result of one case on one kernel.
type Finding struct {
	Kernel, ISA, Family, Case string

	// Refused reports that the kernel does not support the case, and says so.
	Refused bool
	// Worst is the greatest error over its tolerance; +Inf if something other than a number is
	// wrong.
	Worst float64
	// Note says where the worst error is, what is refused, or what else is wrong.
	Note string
	// Excused names outputs of an outside case that the kernel does not write.
	Excused string
	// Late reports that there was no answer in time. The kernel may take as long for other cases.
	Late bool
}

// Right reports whether the answer is within tolerance, or the refusal is exact.
func (f Finding) Right() bool { return f.Worst <= 1 }

// Broken returns the finding of a case that ended in an error.
func (f Finding) Broken(err error) Finding {
	if e := new(attn.RemoteError); errors.As(err, &e) {
		f.Late = e.Late
	}
	return f.wrong("%v", err)
}

func (f Finding) wrong(format string, a ...any) Finding {
	f.Worst, f.Note = math.Inf(1), fmt.Sprintf(format, a...)
	return f
}

// String formats the finding as one line.
func (f Finding) String() string {
	s := fmt.Sprintf("%s/%s on %s/%s: ", f.Kernel, f.ISA, f.Family, f.Case)
	switch {
	case f.Refused:
		return s + "refused: " + f.Note
	case math.IsInf(f.Worst, 1):
		return s + f.Note
	}
	return s + fmt.Sprintf("%.3g times the tolerance: %s", f.Worst, f.Note)
}
