package wait

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Alarm makes timers exact. An idle process sleeps in epoll_wait, whose time-out Go gives in whole milliseconds, so a timer is up to
// a millisecond late there. A timerfd among the files of that epoll ends the sleep at its time, and then the runtime looks at its
// timers; nobody reads the file. A nil Alarm does nothing, and neither does one that does not run.
type Alarm struct {
	mu    sync.Mutex
	fd    int             // the timerfd; 0: it does not run
	times []time.Duration // when wake-ups are due, by CLOCK_MONOTONIC; ascending, each once
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
	if err != nil {
		return fmt.Errorf("timerfd_create: %w", err)
	}
	file := os.NewFile(uintptr(fd), "timerfd") // from now on epoll has it
	a.set(fd)
	<-ctx.Done()
	a.set(0)
	_ = file.Close()
	return ctx.Err()
}

func (a *Alarm) set(fd int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fd, a.times = fd, nil
}

// At asks for a wake-up d from now, for a timer that has been set to d already. Call Passed when the timer has expired or is stopped.
func (a *Alarm) At(d time.Duration) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fd == 0 {
		return
	}
	at := (clock(unix.CLOCK_MONOTONIC) + d).Truncate(alarmGrain) + alarmGrain // not before the timer
	if i, known := slices.BinarySearch(a.times, at); !known {
		if a.times = slices.Insert(a.times, i, at); i == 0 {
			a.arm()
		}
	}
}

// Passed forgets the wake-ups that were due, and sees to the next one.
func (a *Alarm) Passed() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fd == 0 || len(a.times) == 0 {
		return
	}
	due, _ := slices.BinarySearch(a.times, clock(unix.CLOCK_MONOTONIC)+1)
	if a.times = slices.Delete(a.times, 0, due); due > 0 && len(a.times) > 0 {
		a.arm()
	}
}

// arm sets the timerfd. If the kernel refused it, timers would be as late as without.
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
