package machine

import (
	"encoding/binary"
	"maps"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A fakePerf has counters that read what its functions say, and remembers which are open.
type fakePerf struct {
	open    map[int]uint64 // the event, by descriptor
	threads map[int]int
	next    int
	refuse  func(event uint64, thread int) error
	read    func(event uint64) (count, enabled, running uint64)
	enabled int
}

func (f *fakePerf) perf() perf {
	f.open, f.threads = map[int]uint64{}, map[int]int{}
	return perf{
		open: func(attr *unix.PerfEventAttr, thread int) (int, error) {
			if f.refuse != nil {
				if err := f.refuse(attr.Config, thread); err != nil {
					return -1, err
				}
			}
			f.next++
			f.open[f.next] = attr.Config
			f.threads[thread]++
			return f.next, nil
		},
		enable: func(int) error { f.enabled++; return nil },
		read: func(fd int, b []byte) (int, error) {
			count, enabled, running := f.read(f.open[fd])
			binary.NativeEndian.PutUint64(b, count)
			binary.NativeEndian.PutUint64(b[8:], enabled)
			binary.NativeEndian.PutUint64(b[16:], running)
			return 24, nil
		},
		close: func(fd int) error { delete(f.open, fd); return nil },
	}
}

// TestCounters checks the counts of one thread and of several, where some events are not counted.
func TestCounters(t *testing.T) {
	always := func(event uint64) (uint64, uint64, uint64) { return 100 + event, 9, 9 }
	for _, c := range []struct {
		what    string
		fake    fakePerf
		threads int
		want    map[string]int64
	}{
		{"all of them", fakePerf{read: always}, 1, map[string]int64{Cycles: 100, Instructions: 101, CacheMisses: 103}},
		{
			"one that this CPU lacks", fakePerf{read: always, refuse: func(event uint64, _ int) error {
				if event == unix.PERF_COUNT_HW_CACHE_MISSES {
					return syscall.ENOENT
				}
				return nil
			}}, 1, map[string]int64{Cycles: 100, Instructions: 101},
		},
		{
			"one that had to share its counter",
			fakePerf{read: func(event uint64) (uint64, uint64, uint64) { return 7, 9, 9 - event }},
			1,
			map[string]int64{Cycles: 7},
		},
		{
			"one that is refused later", fakePerf{read: always, refuse: func(event uint64, thread int) error {
				if event == unix.PERF_COUNT_HW_INSTRUCTIONS && thread != 0 {
					return syscall.EMFILE
				}
				return nil
			}}, 2, map[string]int64{Cycles: 0, CacheMisses: 0}, // set below: a sum over threads
		},
	} {
		count, _, err := c.fake.perf().counters()
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		c.fake.threads = map[int]int{}
		stop := count(c.threads)
		if c.fake.enabled == 0 || c.fake.enabled != len(c.fake.open) {
			t.Errorf("%s: %d of %d counters are running", c.what, c.fake.enabled, len(c.fake.open))
		}
		if c.threads > 1 {
			n := int64(len(c.fake.threads))
			if c.fake.threads[0] > 0 || n < 2 {
				t.Errorf("%s: counted on threads %v, want all by their ids", c.what, c.fake.threads)
			}
			c.want = map[string]int64{Cycles: 100 * n, CacheMisses: 103 * n}
		}
		if got := stop(); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
		if len(c.fake.open) > 0 {
			t.Errorf("%s: %d counters are left open", c.what, len(c.fake.open))
		}
	}
}

// TestNoCounters checks that the error says why nothing is counted.
func TestNoCounters(t *testing.T) {
	for errno, want := range map[syscall.Errno]string{
		syscall.ENOENT: "not supported", syscall.EOPNOTSUPP: "not supported", syscall.EACCES: "perf_event_paranoid", syscall.EPERM: "perf_event_paranoid",
		syscall.ENOSYS: "without perf events", syscall.EMFILE: "too many open files",
	} {
		f := fakePerf{refuse: func(uint64, int) error { return errno }}
		count, names, err := f.perf().counters()
		if count != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v; %q is wanted", errno, err, want)
		}
		if text := DescribeCounters(names, err); !strings.HasPrefix(text, "none: ") {
			t.Errorf("%v: %q", errno, text)
		}
	}
}

// TestCountersHere checks the counts of this machine, if it has any.
func TestCountersHere(t *testing.T) {
	count, names, err := Counters()
	if err != nil {
		t.Skip(err)
	}
	stop := count(1)
	x := 0.0
	for i := range 1000000 {
		x += float64(i)
	}
	got := stop()
	t.Log(DescribeCounters(names, nil), got, x)
	if n, ok := got[Instructions]; ok && n < 1000000 {
		t.Errorf("%d instructions in a loop of a million additions", n)
	}
}
