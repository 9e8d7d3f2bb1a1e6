package virtual

import (
	"sync"
	"time"
)

// Pace is a wait.Pace that slows the polls of a center down, and rouses them before the next task is due.
type Pace struct {
	mu     sync.Mutex
	least  time.Duration // between two polls of a loop; 0: as the loop has it
	roused chan struct{} // closed when the polls go on at their own pace
}

// Slow makes each poll that waits from now on wait for d at least, until Rouse.
func (p *Pace) Slow(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.least == 0 {
		p.roused = make(chan struct{})
	}
	p.least = d
}

// Rouse ends Slow: polls that wait are made at once.
func (p *Pace) Rouse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.least > 0 {
		close(p.roused)
	}
	p.least = 0
}

// Slowed is for wait.Pace.
func (p *Pace) Slowed(interval time.Duration) (time.Duration, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.least == 0 {
		return interval, nil
	}
	return max(interval, p.least), p.roused
}
