package machine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// events are the events counted, with the kernel's numbers for them.
var events = []struct {
	name   string
	config uint64
}{
	{Cycles, unix.PERF_COUNT_HW_CPU_CYCLES},
	{Instructions, unix.PERF_COUNT_HW_INSTRUCTIONS},
	{CacheMisses, unix.PERF_COUNT_HW_CACHE_MISSES},
}

// A perf is the kernel's interface to perf events, or a test's.
type perf struct {
	open   func(attr *unix.PerfEventAttr, thread int) (fd int, err error)
	enable func(fd int) error
	read   func(fd int, b []byte) (int, error)
	close  func(fd int) error
}

var kernelPerf = perf{
	open: func(attr *unix.PerfEventAttr, thread int) (int, error) {
		return unix.PerfEventOpen(attr, thread, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	},
	enable: func(fd int) error { return unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0) },
	read:   unix.Read,
	close:  unix.Close,
}

// Counters returns a counter of the CPU's events and their names. The error says why there is none.
func Counters() (Counter, []string, error) { return kernelPerf.counters() }

func (p perf) counters() (Counter, []string, error) {
	var names []string
	var refused error
	for _, e := range events {
		fd, err := p.event(e.name, 0)
		if err != nil {
			refused = errors.Join(refused, err)
			continue
		}
		_ = p.close(fd)
		names = append(names, e.name)
	}
	if len(names) == 0 {
		return nil, nil, why(refused)
	}
	return func(threads int) func() map[string]int64 { return p.count(names, threads) }, names, nil
}

// why returns an error that says what to do about one of the kernel.
func why(err error) error {
	switch {
	case errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM):
		const setting = "/proc/sys/kernel/perf_event_paranoid"
		return fmt.Errorf("not permitted (%s is %s): sysctl kernel.perf_event_paranoid=2, or in a container allow perf_event_open", setting, word(setting))
	case errors.Is(err, unix.ENOSYS):
		return errors.New("the kernel is built without perf events")
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENODEV):
		return errors.New("not supported by this CPU, or its hypervisor keeps them to itself")
	}
	return fmt.Errorf("perf_event_open: %w", err)
}

// event opens a counter that does not count yet. Thread 0 is the calling thread.
func (p perf) event(name string, thread int) (fd int, err error) {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_HARDWARE, Read_format: unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING,
		Bits: unix.PerfBitDisabled | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
	}
	attr.Size = uint32(unsafe.Sizeof(attr))
	for _, e := range events {
		if e.name == name {
			attr.Config = e.config
		}
	}
	return p.open(&attr, thread)
}

// count begins to count on one thread, or on all threads of the process. A team has its threads
// before it works.
func (p perf) count(names []string, threads int) func() map[string]int64 {
	on := []int{0}
	if threads > 1 {
		on = tasks()
	}
	opened := map[string][]int{}
	for _, name := range names {
		for _, thread := range on {
			fd, err := p.event(name, thread)
			switch {
			case err == nil:
				opened[name] = append(opened[name], fd)
			case !errors.Is(err, unix.ESRCH): // ESRCH: the thread has ended
				opened[name] = append(opened[name], -1)
			}
		}
	}
	for _, fds := range opened {
		for i, fd := range fds {
			if fd >= 0 && p.enable(fd) != nil {
				_ = p.close(fd)
				fds[i] = -1
			}
		}
	}
	return func() map[string]int64 {
		counts := map[string]int64{}
		for name, fds := range opened {
			if n, ok := p.sum(fds); ok && !slices.Contains(fds, -1) {
				counts[name] = n
			}
		}
		return counts
	}
}

// sum reads and closes counters. It reports false if one of them did not count all the time.
func (p perf) sum(fds []int) (total int64, ok bool) {
	ok = true
	for _, fd := range fds {
		if fd < 0 {
			continue
		}
		var b [24]byte // count, time enabled, time running
		n, err := p.read(fd, b[:])
		_ = p.close(fd)
		if err != nil || n != len(b) {
			ok = false
			continue
		}
		word := func(i int) uint64 { return binary.NativeEndian.Uint64(b[8*i:]) }
		ok = ok && word(2) == word(1)
		total += int64(word(0))
	}
	return total, ok
}

// tasks returns the threads of this process.
func tasks() (ids []int) {
	entries, _ := os.ReadDir("/proc/self/task")
	for _, e := range entries {
		if id, err := strconv.Atoi(e.Name()); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}
