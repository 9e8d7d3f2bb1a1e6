package cluster

import (
	"sync"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
)

// Ownership is the set of partitions that this node owns now. It is safe for concurrent use.
//
// Its partitions may depend on leases, which are renewed while the locks behind them are known to be held. When
// a lease runs out, none of its partitions is owned, even if no goroutine runs. A renewal brings them back.
type Ownership struct {
	mu         sync.RWMutex
	partitions []tenure
	watchers   []wait.Signal
	leases     []lease
	clock      func() instant
}

// tenure is what this node has of a partition, or had last.
type tenure struct {
	owned    bool
	term     uint64    // how often it was taken
	taken    time.Time // when its last term began
	fromDead bool      // the owner before that did not hand it over
	unclean  time.Time // taken, if starts of the owner before may be unsettled
	lease    int
}

// lease covers some partitions.
type lease struct {
	limited bool // false: it does not end
	end     instant
	over    bool // the watchers know that it has ended
	timer   *time.Timer
}

// newOwnership makes an empty Ownership; leaseOf returns the lease of a partition.
func newOwnership(partitions, leases int, leaseOf func(partition int) int) *Ownership {
	o := &Ownership{partitions: make([]tenure, partitions), leases: make([]lease, leases), clock: now}
	for p := range o.partitions {
		o.partitions[p].lease = leaseOf(p)
	}
	return o
}

// Owns reports whether this node owns a partition.
func (o *Ownership) Owns(partition int) bool { return o.Term(partition) != 0 }

// Term is a number that changes each time this node takes the partition; 0 while it does not own it. Knowledge
// of the partition's tasks from one term is void in the next: another node may have fired them.
func (o *Ownership) Term(partition int) uint64 {
	o.mu.RLock()
	defer o.mu.RUnlock()
	p := &o.partitions[partition]
	if !p.owned || !o.isLiveLocked(p.lease) {
		return 0
	}
	return p.term
}

// TakenUncleanly reports whether starts of an earlier owner of the partition may be unrecorded. This is so if
// this node took it, in the present term, from an owner that neither released it nor handed it over, or from
// one that had taken it so itself and handed it over before it was Settled. at is the time of the taking. ok is
// false if this node does not own the partition.
func (o *Ownership) TakenUncleanly(partition int) (at time.Time, ok bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	p := &o.partitions[partition]
	if !p.owned {
		return time.Time{}, false
	}
	return p.unclean, !p.unclean.IsZero()
}

// Taken returns when this node took a partition, in the present term, and whether that was from an owner that did not hand it over.
// Unlike TakenUncleanly it is so until the term ends. The zero time: this node does not own it.
func (o *Ownership) Taken(partition int) (at time.Time, fromDead bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	p := &o.partitions[partition]
	if !p.owned {
		return time.Time{}, false
	}
	return p.taken, p.fromDead
}

// Settled records that a partition was taken uncleanly in this term and no task that was due by then is pending
// any more.
func (o *Ownership) Settled(partition int, term uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p := &o.partitions[partition]; p.owned && p.term == term {
		p.unclean = time.Time{}
	}
}

// unsettle records that runs of partitions, which this node owns no longer, may continue after the hand-over.
func (o *Ownership) unsettle(partitions []int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range partitions {
		o.partitions[p].unclean = time.Now()
	}
}

// isUnsettled reports whether a partition that this node has, or had last, must be handed over as taken
// uncleanly.
func (o *Ownership) isUnsettled(partition int) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return !o.partitions[partition].unclean.IsZero()
}

// Owned lists this node's partitions.
func (o *Ownership) Owned() []int {
	o.mu.RLock()
	defer o.mu.RUnlock()
	list := make([]int, 0, len(o.partitions))
	live := make([]bool, len(o.leases))
	for l := range live {
		live[l] = o.isLiveLocked(l)
	}
	for p, t := range o.partitions {
		if t.owned && live[t.lease] {
			list = append(list, p)
		}
	}
	return list
}

// Watch returns a channel that gets a signal after each change; several changes may share one.
func (o *Ownership) Watch() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := wait.NewSignal()
	o.watchers = append(o.watchers, w)
	return w
}

// take starts a new term of the partitions on this node. unclean reports for each whether the owner before did
// not hand it over; nil: all did.
func (o *Ownership) take(partitions []int, unclean func(partition int) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	changed := false
	for _, number := range partitions {
		p := &o.partitions[number]
		if p.owned {
			continue
		}
		changed, p.owned = true, true
		p.term++
		// An unsettled partition stays unsettled when it comes back: this node does not know whether another
		// one settled it.
		p.taken, p.fromDead = time.Now(), !p.unclean.IsZero() || unclean != nil && unclean(number)
		if p.fromDead {
			p.unclean = p.taken
		}
	}
	if changed {
		o.ring()
	}
}

// drop ends this node's terms of the partitions.
func (o *Ownership) drop(partitions []int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	changed := false
	for _, p := range partitions {
		changed = changed || o.partitions[p].owned
		o.partitions[p].owned = false
	}
	if changed {
		o.ring()
	}
}

func (o *Ownership) ring() {
	for _, w := range o.watchers {
		w.Set()
	}
}

// instant is a reading of both clocks in nanoseconds. The monotonic clock of a paused machine may stand still,
// and the wall clock may be set: only both together can be trusted.
type instant struct{ mono, wall int64 }

var start = time.Now()

func now() instant {
	t := time.Now()
	return instant{int64(t.Sub(start)), t.UnixNano()}
}

func (i instant) add(d time.Duration) instant { return instant{i.mono + int64(d), i.wall + int64(d)} }

// since is the time from an earlier instant, by the clock that shows more.
func (i instant) since(earlier instant) time.Duration {
	return time.Duration(max(i.mono-earlier.mono, i.wall-earlier.wall))
}

// isLiveLocked reports whether a lease runs. The wall clock counts as well: a step forward ends the lease
// early, until the next renewal; a step back changes nothing. The caller holds mu.
func (o *Ownership) isLiveLocked(l int) bool {
	if !o.leases[l].limited {
		return true
	}
	at, end := o.clock(), o.leases[l].end
	return at.mono < end.mono && at.wall < end.wall
}

// isLive reports whether a lease runs.
func (o *Ownership) isLive(l int) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.isLiveLocked(l)
}

// renew extends a lease until the given instant.
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

// lapse notifies the watchers when the time of a lease is over.
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
