package wait_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/wait"
)

func TestMutex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m wait.Mutex
		var all sync.WaitGroup
		inside, most, rounds := 0, 0, 0
		start := time.Now()
		for range 10 {
			all.Go(func() {
				m.Lock()
				defer m.Unlock()
				inside++
				most = max(most, inside)
				rounds++
				time.Sleep(time.Second) // it would never end with a sync.Mutex
				inside--
			})
		}
		all.Wait()
		require.Equal(t, 1, most)
		require.Equal(t, 10, rounds)
		require.Equal(t, 10*time.Second, time.Since(start))
		require.Panics(t, m.Unlock)
	})
}
