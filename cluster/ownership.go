package cluster

import (
	"sync"
	"time"
)

// Ownership is the set of partitions that this node owns now. It is safe for
// concurrent use.
//
// It may hang on a lease, which is renewed while the locks behind it are known
// to be held. Once that has run out nothing is owned, whoever renews or does not;
// when it is renewed all is as before.
type Ownership struct {
	mu       sync.RWMutex
	owned    []bool
	terms    []uint64 // by partition: how often it was taken
	watchers []chan struct{}

	leased bool // false: the lease has no end
	end    instant
	over   bool // the watchers know that the lease has run out
	timer  *time.Timer
	clock  func() instant
}

// NewOwnership starts with none of the given number of partitions, and with a
// lease that has no end.
func NewOwnership(partitions int) *Ownership {
	return &Ownership{owned: make([]bool, partitions), terms: make([]uint64, partitions), clock: now}
}

// Owns tells whether a partition is this node's.
func (o *Ownership) Owns(partition int) bool { return o.Term(partition) != 0 }

// Term is a number that is another one each time the partition is taken, or 0
// while it is not this node's. What was known of the partition's tasks in one term
// says nothing in the next: another node may have fired them.
func (o *Ownership) Term(partition int) uint64 {
	o.mu.RLock()
	defer o.mu.RUnlock()
	if !o.owned[partition] || !o.live() {
		return 0
	}
	return o.terms[partition]
}

// Owned lists this node's partitions.
func (o *Ownership) Owned() []int {
	o.mu.RLock()
	defer o.mu.RUnlock()
	list := make([]int, 0, len(o.owned))
	if !o.live() {
		return list
	}
	for p, mine := range o.owned {
		if mine {
			list = append(list, p)
		}
	}
	return list
}

// Watch gives a channel that is rung after each change; several changes may
// share a ring.
func (o *Ownership) Watch() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := make(chan struct{}, 1)
	o.watchers = append(o.watchers, w)
	return w
}

// set changes partitions first to end−1.
func (o *Ownership) set(first, end int, mine bool) {
	list := make([]int, 0, end-first)
	for p := first; p < end; p++ {
		list = append(list, p)
	}
	o.change(list, mine)
}

// change makes the partitions this node's, or no longer so.
func (o *Ownership) change(partitions []int, mine bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	changed := false
	for _, p := range partitions {
		if o.owned[p] == mine {
			continue
		}
		changed, o.owned[p] = true, mine
		if mine {
			o.terms[p]++
		}
	}
	if changed {
		o.ring()
	}
}

func (o *Ownership) ring() {
	for _, w := range o.watchers {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// instant is a reading of both clocks in nanoseconds. The monotonic clock of a
// paused machine may stand still, and the wall clock may be set: only together
// can they be trusted.
type instant struct{ mono, wall int64 }

var start = time.Now()

func now() instant {
	t := time.Now()
	return instant{int64(t.Sub(start)), t.UnixNano()}
}

func (i instant) add(d time.Duration) instant { return instant{i.mono + int64(d), i.wall + int64(d)} }

// since is the time from an earlier instant, by the clock that says more.
func (i instant) since(earlier instant) time.Duration {
	return time.Duration(max(i.mono-earlier.mono, i.wall-earlier.wall))
}

// live tells whether the lease runs. The wall clock counts as well: a step
// forward ends the lease before its time, until the next renewal; a step back
// changes nothing.
func (o *Ownership) live() bool {
	if !o.leased {
		return true
	}
	at := o.clock()
	return at.mono < o.end.mono && at.wall < o.end.wall
}

// renew lets the lease run until the given instant.
func (o *Ownership) renew(end instant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.leased, o.end = true, end
	if !o.live() {
		o.runOut()
		return
	}
	left := time.Duration(end.mono - o.clock().mono)
	if o.timer == nil {
		o.timer = time.AfterFunc(left, o.lapse)
	} else {
		o.timer.Reset(left)
	}
	if o.over {
		o.over = false
		o.ring()
	}
}

// expire ends the lease now.
func (o *Ownership) expire() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.timer != nil {
		o.timer.Stop()
	}
	o.leased, o.end = true, instant{}
	o.runOut()
}

// lapse tells the watchers when the lease runs out by itself.
func (o *Ownership) lapse() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.live() {
		o.runOut()
	}
}

func (o *Ownership) runOut() {
	if !o.over {
		o.over = true
		o.ring()
	}
}
