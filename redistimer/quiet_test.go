package redistimer_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/redistimer"
	"github.com/timeoutcenter/toc/task"
)

// scriptsRun is how many scripts Redis has run.
func (c *center) scriptsRun(t *testing.T) (n int) {
	stats, err := c.redis.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	for line := range strings.Lines(stats) {
		if _, calls, ok := strings.Cut(line, "cmdstat_evalsha:calls="); ok {
			n, err = strconv.Atoi(calls[:strings.IndexByte(calls, ',')])
			require.NoError(t, err)
		}
	}
	return n
}

// What idle types cost does not grow with their number: their slots are not looked at. Before, each was looked at every
// three seconds, and some tens of types filled a core.
func TestIdleTypesCostNothing(t *testing.T) {
	t.Parallel()
	c := open(t, private(testrig.StartRedis(t)))
	n := c.start(everything...)
	types := c.types()
	for i := range uint64(200) {
		b := c.biz
		b.ID, b.Name, b.Topic = 100+i, fmt.Sprint("type", i), fmt.Sprint("topic", i)
		types = append(types, b)
	}
	n.SetTypes(types)
	c.filled()
	c.eventually(func() bool { // what takes slots over is done
		before := c.scriptsRun(t)
		time.Sleep(500 * time.Millisecond)
		return c.scriptsRun(t)-before <= 2*layout.Partitions
	}, "slots are still looked at")
	before := c.scriptsRun(t)
	time.Sleep(4 * time.Second)
	require.LessOrEqual(t, c.scriptsRun(t)-before, 4*layout.Partitions, "the guards alone")
}

// A slot that is not looked at is filled again when Redis has lost everything.
func TestAQuietSlotIsLost(t *testing.T) {
	t.Parallel()
	c := open(t, private(testrig.StartRedis(t)))
	c.guarded = true
	n := c.start(everything...)
	c.filled()
	ids := make([]uint64, 20)
	for i := range ids {
		ids[i] = n.submit(uint64(i), 13*time.Second).JobID
	}
	c.eventually(func() bool { return c.depth() == depth{Store: 20} }, "they are not armed")
	require.NoError(t, c.redis.FlushAll(t.Context()).Err())
	c.eventually(func() bool { return c.depth() == depth{Store: 20} }, "they are not armed again, though nothing of them is due")
	c.mu.Lock()
	require.Equal(t, 20, c.rearmed[redistimer.ReasonLost])
	c.mu.Unlock()
	time.Sleep(8 * time.Second)
	for _, id := range ids {
		c.settled(id, task.Processed)
		require.Len(t, c.runsOf(id), 1)
	}
}
