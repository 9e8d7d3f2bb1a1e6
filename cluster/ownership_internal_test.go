package cluster

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOwnership(t *testing.T) {
	o := NewOwnership(8)
	require.Empty(t, o.Owned())
	first, second := o.Watch(), o.Watch()
	o.set(2, 4, true)
	require.Equal(t, []int{2, 3}, o.Owned())
	require.True(t, o.Owns(2))
	require.False(t, o.Owns(4))
	require.Len(t, first, 1)
	require.Len(t, second, 1)
	<-first
	o.set(2, 4, true)
	require.Empty(t, first, "nothing changed")
	o.set(3, 6, true)
	o.set(2, 3, false)
	require.Equal(t, []int{3, 4, 5}, o.Owned())
	require.Len(t, first, 1, "several changes share a ring")
	require.Len(t, second, 1)
}

// Who hears a ring and then looks sees the change that rang, or a later one.
func TestNoChangeIsMissed(t *testing.T) {
	o := NewOwnership(4)
	rings := o.Watch()
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for !o.Owns(3) {
			<-rings
		}
	})
	for p := range 4 {
		o.set(p, p+1, true)
	}
	watcher.Wait()
}

func TestEachTakingIsATermOfItsOwn(t *testing.T) {
	o := NewOwnership(4)
	require.Zero(t, o.Term(1), "not ours")
	o.set(1, 3, true)
	first := o.Term(1)
	require.NotZero(t, first)
	o.set(1, 3, true)
	require.Equal(t, first, o.Term(1), "nothing has changed")
	o.renew(now().add(time.Hour))
	o.expire()
	require.Zero(t, o.Term(1), "without a lease nothing is ours")
	o.renew(now().add(time.Hour))
	require.Equal(t, first, o.Term(1), "the locks were held all the time")
	o.set(1, 2, false)
	require.Zero(t, o.Term(1))
	o.set(1, 2, true)
	require.NotContains(t, []uint64{0, first}, o.Term(1))
	require.Equal(t, first, o.Term(2))
}
