package cluster

import (
	"sync"
	"time"
)

// Ownership is the set of partitions that this node owns now. It is safe for
// concurrent use.
//
// It may hang on leases, each of some partitions, which are renewed while the locks
// behind them are known to be held. Once a lease has run out none of its partitions
// is owned, whoever renews or does not; when it is renewed all is as before.
type Ownership struct {
	mu       sync.RWMutex
	owned    []bool
	terms    []uint64    // by partition: how often it was taken
	unclean  []time.Time // by partition: when its last term began, if what an owner before had started is not known to be settled
	watchers []chan struct{}

	leases  []lease
	leaseOf []int // by partition
	clock   func() instant
}

// lease is what some partitions hang on.
type lease struct {
	limited bool // false: it has no end
	end     instant
	over    bool // the watchers know that it has run out
	timer   *time.Timer
}

// NewOwnership starts with none of the given number of partitions, and with a
// lease that has no end.
func NewOwnership(partitions int) *Ownership {
	return newOwnership(partitions, 1, func(int) int { return 0 })
}

// newOwnership starts with none of the partitions; leaseOf says which lease each hangs on.
func newOwnership(partitions, leases int, leaseOf func(partition int) int) *Ownership {
	o := &Ownership{
		owned: make([]bool, partitions), terms: make([]uint64, partitions), unclean: make([]time.Time, partitions),
		leases: make([]lease, leases), leaseOf: make([]int, partitions), clock: now,
	}
	for p := range o.leaseOf {
		o.leaseOf[p] = leaseOf(p)
	}
	return o
}

// Owns tells whether a partition is this node's.
func (o *Ownership) Owns(partition int) bool { return o.Term(partition) != 0 }

// Term is a number that is another one each time the partition is taken, or 0
// while it is not this node's. What was known of the partition's tasks in one term
// says nothing in the next: another node may have fired them.
func (o *Ownership) Term(partition int) uint64 {
	o.mu.RLock()
	defer o.mu.RUnlock()
	if !o.owned[partition] || !o.isLiveLocked(o.leaseOf[partition]) {
		return 0
	}
	return o.terms[partition]
}

// TakenUncleanly tells whether what an owner before had started in the partition may
// not be recorded: this node took it, in its present term, from one that neither
// released it nor handed it over, or that had taken it so itself and passed it on
// before it was Settled. at is the moment of the taking. It answers no for a partition
// that is not this node's.
func (o *Ownership) TakenUncleanly(partition int) (at time.Time, ok bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	if !o.owned[partition] {
		return time.Time{}, false
	}
	at = o.unclean[partition]
	return at, !at.IsZero()
}

// Settled notes, in the term in which a partition was taken uncleanly, that nothing is
// pending any more that was due by then.
func (o *Ownership) Settled(partition int, term uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.owned[partition] && o.terms[partition] == term {
		o.unclean[partition] = time.Time{}
	}
}

// unsettle notes that what runs of partitions, which are this node's no longer, may go on
// after they were passed on.
func (o *Ownership) unsettle(partitions []int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range partitions {
		o.unclean[p] = time.Now()
	}
}

// isUnsettled tells whether a partition that this node has, or had last, is one to be
// passed on as taken uncleanly.
func (o *Ownership) isUnsettled(partition int) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return !o.unclean[partition].IsZero()
}

// Owned lists this node's partitions.
func (o *Ownership) Owned() []int {
	o.mu.RLock()
	defer o.mu.RUnlock()
	list := make([]int, 0, len(o.owned))
	live := make([]bool, len(o.leases))
	for l := range live {
		live[l] = o.isLiveLocked(l)
	}
	for p, mine := range o.owned {
		if mine && live[o.leaseOf[p]] {
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

// take makes the partitions this node's, in a new term. unclean tells of each whether the owner
// before gave it back in order; nil: all did.
func (o *Ownership) take(partitions []int, unclean func(partition int) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	changed := false
	for _, p := range partitions {
		if o.owned[p] {
			continue
		}
		changed, o.owned[p] = true, true
		o.terms[p]++
		// What was unsettled when we lost it is so still, unless another node has settled it, of which we do not know.
		if !o.unclean[p].IsZero() || unclean != nil && unclean(p) {
			o.unclean[p] = time.Now()
		}
	}
	if changed {
		o.ring()
	}
}

// drop makes the partitions this node's no longer.
func (o *Ownership) drop(partitions []int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	changed := false
	for _, p := range partitions {
		changed = changed || o.owned[p]
		o.owned[p] = false
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

// live tells whether a lease runs. The wall clock counts as well: a step
// forward ends the lease before its time, until the next renewal; a step back
// changes nothing. The caller holds mu.
func (o *Ownership) isLiveLocked(l int) bool {
	if !o.leases[l].limited {
		return true
	}
	at, end := o.clock(), o.leases[l].end
	return at.mono < end.mono && at.wall < end.wall
}

// isLive tells whether a lease runs.
func (o *Ownership) isLive(l int) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.isLiveLocked(l)
}

// renew lets a lease run until the given instant.
func (o *Ownership) renew(l int, end instant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	lease := &o.leases[l]
	lease.limited, lease.end = true, end
	if !o.isLiveLocked(l) {
		o.runOut(l)
		return
	}
	left := time.Duration(end.mono - o.clock().mono)
	if lease.timer == nil {
		lease.timer = time.AfterFunc(left, func() { o.lapse(l) })
	} else {
		lease.timer.Reset(left)
	}
	if lease.over {
		lease.over = false
		o.ring()
	}
}

// expire ends a lease now.
func (o *Ownership) expire(l int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	lease := &o.leases[l]
	if lease.timer != nil {
		lease.timer.Stop()
	}
	lease.limited, lease.end = true, instant{}
	o.runOut(l)
}

// lapse tells the watchers when a lease runs out by itself.
func (o *Ownership) lapse(l int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.isLiveLocked(l) {
		o.runOut(l)
	}
}

func (o *Ownership) runOut(l int) {
	if !o.leases[l].over {
		o.leases[l].over = true
		o.ring()
	}
}
