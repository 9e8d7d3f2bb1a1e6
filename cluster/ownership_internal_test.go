package cluster

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ownershipOf is an empty Ownership of so many partitions, with a lease that does not end.
func ownershipOf(partitions int) *Ownership {
	return newOwnership(partitions, 1, func(int) int { return 0 })
}

// set adds or removes the partitions first to end−1.
func set(o *Ownership, first, end int, mine bool) {
	for p := first; p < end; p++ {
		if mine {
			o.take([]int{p}, nil)
		} else {
			o.drop([]int{p})
		}
	}
}

func TestOwnership(t *testing.T) {
	o := ownershipOf(8)
	require.Empty(t, o.Owned())
	first, second := o.Watch(), o.Watch()
	set(o, 2, 4, true)
	require.Equal(t, []int{2, 3}, o.Owned())
	require.True(t, o.Owns(2))
	require.False(t, o.Owns(4))
	require.Len(t, first, 1)
	require.Len(t, second, 1)
	<-first
	set(o, 2, 4, true)
	require.Empty(t, first, "nothing changed")
	set(o, 3, 6, true)
	set(o, 2, 3, false)
	require.Equal(t, []int{3, 4, 5}, o.Owned())
	require.Len(t, first, 1, "several changes share a ring")
	require.Len(t, second, 1)
}

// A watcher that looks after a signal sees the change behind it, or a later one.
func TestNoChangeIsMissed(t *testing.T) {
	o := ownershipOf(4)
	rings := o.Watch()
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for !o.Owns(3) {
			<-rings
		}
	})
	for p := range 4 {
		set(o, p, p+1, true)
	}
	watcher.Wait()
}

func TestEachTakingIsATermOfItsOwn(t *testing.T) {
	o := ownershipOf(4)
	require.Zero(t, o.Term(1), "not ours")
	set(o, 1, 3, true)
	first := o.Term(1)
	require.NotZero(t, first)
	set(o, 1, 3, true)
	require.Equal(t, first, o.Term(1), "nothing has changed")
	o.renew(0, now().add(time.Hour))
	o.expire(0)
	require.Zero(t, o.Term(1), "without a lease nothing is ours")
	o.renew(0, now().add(time.Hour))
	require.Equal(t, first, o.Term(1), "the locks were held all the time")
	set(o, 1, 2, false)
	require.Zero(t, o.Term(1))
	set(o, 1, 2, true)
	require.NotContains(t, []uint64{0, first}, o.Term(1))
	require.Equal(t, first, o.Term(2))
}

// Before, a partition that was lost and taken again by the same node was settled by that, so a task that ended the process soon
// after a hiccup of the database ended it for ever.
func TestWhatIsUnsettledStaysSoThroughALoss(t *testing.T) {
	o := ownershipOf(3)
	o.take([]int{0, 1, 2}, func(p int) bool { return p < 2 })
	o.Settled(1, o.Term(1))
	o.drop([]int{0, 1, 2})
	o.take([]int{0, 1, 2}, nil)
	for p, want := range []bool{true, false, false} {
		_, unclean := o.TakenUncleanly(p)
		require.Equal(t, want, unclean, "partition %d", p)
	}
	o.drop([]int{2})
	o.unsettle([]int{2}) // handed over with work in hand
	require.True(t, o.isUnsettled(2))
}
