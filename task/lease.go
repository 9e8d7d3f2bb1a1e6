package task

import (
	"math/rand/v2"
	"time"
)

// A lease number has two parts: bits by chance that name the lease, and a mark of its end. So the row alone shows whether
// action_time is the end that its lease has written, or a time that somebody has set since: then the lease is void.
//
// The mark is the end in milliseconds, modulo 2^24, mixed with the bits above them: two ends that are less than 4.6 hours apart
// have different marks, and of others one in 16 million has the same.
//
// One of the bits by chance is always set. So the column can have a small number instead, which is no lease: see Cuts.
const leaseMarkBits = 24

// NewLease returns the number of a new lease that ends then.
func NewLease(end time.Time) uint64 {
	return (rand.Uint64()>>1|1<<leaseMarkBits)&^leaseMask | leaseMark(end)
}

const leaseMask = 1<<leaseMarkBits - 1

// LeaseUntil returns the number of a lease that ends at another time now.
func LeaseUntil(lease uint64, end time.Time) uint64 { return lease&^leaseMask | leaseMark(end) }

// IsSameLease reports whether two numbers name one lease, also with different ends.
func IsSameLease(a, b uint64) bool { return a>>leaseMarkBits == b>>leaseMarkBits }

func leaseMark(end time.Time) uint64 {
	ms := uint64(end.UnixMilli())
	return (ms ^ (ms>>leaseMarkBits)*0x9E3779B1) & leaseMask
}

// HasLease reports whether a consumer has the task, or had it until ActionTime and has not settled it. It is false if
// ActionTime was set by hand since: the lease is void, and the task is due then.
func (t *Task) HasLease() bool {
	return t.Lease > leaseMask && t.Lease&leaseMask == leaseMark(t.ActionTime)
}

// IsLeased reports whether a consumer has the task.
func (t *Task) IsLeased(now time.Time) bool {
	return t.Status == Pending && t.HasLease() && t.ActionTime.After(now)
}

// Cuts is the number of starts of the task that had no end, as its row has it. A center that has started the task as one that may end
// its process counts that start, too, until the run has ended.
func (t *Task) Cuts() int {
	if t.Lease > leaseMask {
		return 0
	}
	return int(t.Lease)
}
