// Package cluster answers which partitions are this node's.
//
// Locks come in, ownership goes out: a set of partitions that changes now and
// then. It refuses to know what is done with a partition.
//
// Single is the cluster of one node: it owns every partition of each database
// whose exclusive lock it holds, so that a second process on the same store is
// refused.
package cluster

import (
	"slices"
	"sync"
)

// Ownership is the set of partitions that this node owns now. It is safe for
// concurrent use.
type Ownership struct {
	mu       sync.RWMutex
	owned    []bool
	watchers []chan struct{}
}

// NewOwnership starts with none of the given number of partitions.
func NewOwnership(partitions int) *Ownership {
	return &Ownership{owned: make([]bool, partitions)}
}

// Owns tells whether a partition is this node's.
func (o *Ownership) Owns(partition int) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.owned[partition]
}

// Owned lists this node's partitions.
func (o *Ownership) Owned() []int {
	o.mu.RLock()
	defer o.mu.RUnlock()
	list := make([]int, 0, len(o.owned))
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
	o.mu.Lock()
	defer o.mu.Unlock()
	before := slices.Clone(o.owned[first:end])
	for p := first; p < end; p++ {
		o.owned[p] = mine
	}
	if slices.Equal(before, o.owned[first:end]) {
		return
	}
	for _, w := range o.watchers {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}
