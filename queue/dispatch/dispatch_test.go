package dispatch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

var layout = sharding.Layout{Databases: 2, TablesPerDatabase: 2, Partitions: 4}

func TestWhere(t *testing.T) {
	now := time.Now()
	for name, row := range map[string]struct {
		engine dispatch.EngineKind
		due    time.Time
		owned  bool
		want   dispatch.Place
	}{
		"not configured":           {dispatch.NoEngine, now, true, dispatch.Store},
		"scanned, soon, ours":      {dispatch.Scan, now, true, dispatch.Queue},
		"scanned, soon, another's": {dispatch.Scan, now, false, dispatch.Owner},
		"scanned, later":           {dispatch.Scan, now.Add(time.Millisecond), true, dispatch.Store},
		"timed, soon, ours":        {dispatch.Redis, now, true, dispatch.Slot},
		"timed, soon, another's":   {dispatch.Redis, now, false, dispatch.Slot},
		"timed, later":             {dispatch.Redis, now.Add(time.Millisecond), false, dispatch.Store},
	} {
		f := dispatch.Facts{Engine: row.engine, Until: now, Owned: row.owned}
		require.Equal(t, row.want, f.Where(row.due), name)
	}
}

// center is the state of a node, drawn at random.
type center struct {
	modes   map[uint64]task.Mode // of the business types that are configured
	timed   map[uint64]bool      // types of the redis engine
	away    map[int]bool         // partitions whose slots are out of reach
	owned   map[int]bool
	ahead   time.Time // of the scan engine
	horizon time.Time

	notified, armed, confirmed, forgotten []uint64
	finished                              [][2]uint64 // job_id and biz_type
	ticks                                 int
}

func (c *center) Owns(p int) bool { return c.owned[p] }

func (c *center) timerServes(bizType uint64, p int) bool { return c.timed[bizType] && !c.away[p] }

func (c *center) scannerServes(bizType uint64, p int) bool {
	mode, known := c.modes[bizType]
	return known && (mode == task.ModeScan || !c.timerServes(bizType, p))
}

type scanEngine struct{ *center }

func (e scanEngine) Until(bizType uint64, p int) (time.Time, bool) {
	return e.ahead, e.scannerServes(bizType, p)
}

func (e scanEngine) Place(tasks ...task.Task) {
	for _, t := range tasks {
		e.notified = append(e.notified, t.JobID)
	}
}

func (e scanEngine) Tick() { e.ticks++ }

type redisEngine struct{ *center }

func (e redisEngine) Until(bizType uint64, p int) (time.Time, bool) {
	return e.horizon, e.timerServes(bizType, p)
}

func (e redisEngine) Place(tasks ...task.Task) {
	for _, t := range tasks {
		e.armed = append(e.armed, t.JobID)
	}
}

func (e redisEngine) Confirm(tasks ...task.Task) {
	for _, t := range tasks {
		e.confirmed = append(e.confirmed, t.JobID)
	}
}

func (e redisEngine) Forget(jobID uint64) { e.forgotten = append(e.forgotten, jobID) }

func (e redisEngine) Finish(jobID, bizType uint64) {
	e.finished = append(e.finished, [2]uint64{jobID, bizType})
}

// Before this package, four packages each decided a part: which tasks go into this node's queue, which are sent
// to their owner, and which are armed. Where must agree with them.
func TestWhereAgreesWithTheFormerDecisions(t *testing.T) {
	now := time.Now()
	moment := rapid.Custom(func(t *rapid.T) time.Time {
		return now.Add(time.Duration(rapid.IntRange(-3, 3).Draw(t, "moment")) * time.Second)
	})
	rapid.Check(t, func(t *rapid.T) {
		c := &center{
			modes: rapid.MapOf(rapid.Uint64Range(1, 4), rapid.SampledFrom([]task.Mode{task.ModeScan, task.ModeRedis})).Draw(t, "modes"),
			timed: rapid.MapOf(rapid.Uint64Range(1, 4), rapid.Bool()).Draw(t, "timed"),
			away:  rapid.MapOf(rapid.IntRange(0, 3), rapid.Bool()).Draw(t, "away"),
			owned: rapid.MapOf(rapid.IntRange(0, 3), rapid.Bool()).Draw(t, "owned"),
			ahead: moment.Draw(t, "ahead"), horizon: moment.Draw(t, "horizon"),
		}
		for b := range c.modes { // a type that is not configured has no slots
			c.timed[b] = c.timed[b] && c.modes[b] == task.ModeRedis
		}
		for b := range c.timed {
			c.timed[b] = c.timed[b] && c.modes[b] == task.ModeRedis
		}
		id, err := sharding.JobID(now, rapid.IntRange(0, layout.Shards()-1).Draw(t, "shard"), 0)
		require.NoError(t, err)
		row := task.Task{JobID: id, BizType: rapid.Uint64Range(1, 5).Draw(t, "biz_type"), ActionTime: moment.Draw(t, "due")}
		shard, _ := layout.ShardOf(id)
		p := layout.Partition(shard)

		soon := !row.ActionTime.After(c.ahead) && c.scannerServes(row.BizType, p)
		near := soon && c.owned[p]
		arms := c.timed[row.BizType] && !row.ActionTime.After(c.horizon) && c.timerServes(row.BizType, p)

		d := dispatch.Dispatcher{Layout: layout, Ownership: c, Scanner: scanEngine{c}, Timer: redisEngine{c}}
		place := d.Where(&row)
		require.Equal(t, near, place == dispatch.Queue, place)
		require.Equal(t, soon && !near, place == dispatch.Owner, place)
		require.Equal(t, arms, place == dispatch.Slot, place)
	})
}

func TestTheEnginesGetEveryTask(t *testing.T) {
	c := &center{}
	d := dispatch.Dispatcher{Layout: layout, Ownership: c, Scanner: scanEngine{c}, Timer: redisEngine{c}}
	d.Place(task.Task{JobID: 1}, task.Task{JobID: 2})
	require.Equal(t, []uint64{1, 2}, c.notified)
	require.Equal(t, []uint64{1, 2}, c.armed)
	d.Confirm(task.Task{JobID: 5})
	require.Equal(t, []uint64{5}, c.confirmed)
	d.Forget(3)
	require.Equal(t, []uint64{3}, c.forgotten)
	d.Finish(4, 1)
	require.Equal(t, [][2]uint64{{4, 1}}, c.finished)
	d.Tick()
	require.Equal(t, 1, c.ticks)
	require.Equal(t, dispatch.Store, d.Where(&task.Task{JobID: 1 << 63}), "not a job_id of this center")
}
