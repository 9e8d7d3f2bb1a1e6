package wait

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Alarm makes timers exact. An idle process sleeps in epoll_wait, whose time-out Go gives in whole milliseconds, so a timer is up to
// a millisecond late there. A timerfd among the files of that epoll ends the sleep at its time, and then the runtime looks at its
// timers; nobody reads the file. A nil Alarm does nothing, and neither does one that does not run, or to which the kernel gives no
// timerfd: then timers are as late as without.
type Alarm struct {
	mu    sync.Mutex
	fd    int             // the timerfd; 0: it does not run
	times []time.Duration // when wake-ups are due, by CLOCK_MONOTONIC; ascending
}

// alarmGrain is the time within which wake-ups are one.
const alarmGrain = 50 * time.Microsecond

// Run serves At until ctx ends. In a synctest bubble timers are exact, and it only waits.
func (a *Alarm) Run(ctx context.Context) error {
	if isVirtual() {
		<-ctx.Done()
		return ctx.Err()
	}
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err == nil {
		file := os.NewFile(uintptr(fd), "timerfd") // from now on epoll has it
		defer file.Close()
		a.set(fd)
		defer a.set(0)
	}
	<-ctx.Done()
	return ctx.Err()
}

func (a *Alarm) set(fd int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fd, a.times = fd, nil
}

// At asks for a wake-up d from now, for a timer that has been set to d already. It returns the time of the wake-up: give it to Passed
// when the timer has expired or is stopped.
func (a *Alarm) At(d time.Duration) (at time.Duration) {
	if a == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fd == 0 {
		return 0
	}
	at = (clock(unix.CLOCK_MONOTONIC) + d).Truncate(alarmGrain) + alarmGrain // not before the timer
	i, known := slices.BinarySearch(a.times, at)
	if a.times = slices.Insert(a.times, i, at); i == 0 && !known {
		a.arm()
	}
	return at
}

// Passed forgets a wake-up, and sees to the next one.
func (a *Alarm) Passed(at time.Duration) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	i, known := slices.BinarySearch(a.times, at)
	if !known {
		return
	}
	if a.times = slices.Delete(a.times, i, i+1); i == 0 && len(a.times) > 0 && a.times[0] != at {
		a.arm()
	}
}

// arm sets the timerfd to the first time. If the kernel refused it, timers would be as late as without.
func (a *Alarm) arm() {
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(a.times[0]))}
	_ = unix.TimerfdSettime(a.fd, unix.TFD_TIMER_ABSTIME, &at, nil)
}

// isVirtual reports whether this goroutine's time is that of a synctest bubble, which begins in the year 2000.
func isVirtual() bool {
	return time.Until(time.Unix(0, int64(clock(unix.CLOCK_REALTIME)))).Abs() > 24*time.Hour
}

func clock(id int32) time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(id, &t)
	return time.Duration(t.Nano())
}
