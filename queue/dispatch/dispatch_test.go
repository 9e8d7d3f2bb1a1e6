package dispatch_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/timeoutcenter/toc/queue"
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

	told     []dispatch.Change // the redis engine
	notified []uint64          // other nodes
	rows     []task.Task       // in the store
	ticks    int
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

func (e scanEngine) Tick() { e.ticks++ }

type redisEngine struct{ *center }

func (e redisEngine) Until(bizType uint64, p int) (time.Time, bool) {
	return e.horizon, e.timerServes(bizType, p)
}

func (e redisEngine) Moved(changes []dispatch.Change) { e.told = append(e.told, changes...) }

func (c *center) Notify(tasks ...task.Task) {
	for _, t := range tasks {
		c.notified = append(c.notified, t.JobID)
	}
}

func (c *center) Load(context.Context, []uint64) ([]task.Task, error) { return c.rows, nil }

func (c *center) dispatcher(q *queue.Queue) *dispatch.Dispatcher {
	return dispatch.New(dispatch.Config{
		Layout: layout, Queue: q, Store: c, Ownership: c, Scanner: scanEngine{c}, Timer: redisEngine{c}, Nodes: c,
	})
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

		place := c.dispatcher(nil).Where(&row)
		require.Equal(t, near, place == dispatch.Queue, place)
		require.Equal(t, soon && !near, place == dispatch.Owner, place)
		require.Equal(t, arms, place == dispatch.Slot, place)
	})
}

func TestADispatcherWithoutEngines(t *testing.T) {
	d := dispatch.New(dispatch.Config{Layout: layout})
	require.Equal(t, dispatch.Store, d.Where(&task.Task{JobID: 1}))
	require.Equal(t, dispatch.Store, d.Where(&task.Task{JobID: 1 << 63}), "not a job_id of this center")
	d.Moved(dispatch.Change{Row: &task.Task{JobID: 1}}, dispatch.Change{JobID: 2, Status: task.Dead})
	d.Tick()
}

func TestTick(t *testing.T) {
	c := &center{}
	c.dispatcher(nil).Tick()
	require.Equal(t, 1, c.ticks)
}

// Business types and partitions of TestMoved.
const (
	scanned, timed = 1, 2
	ours, others   = 0, 1 // shards
)

// What follows each change of a row, for a task that waits in each place.
func TestMoved(t *testing.T) {
	now := time.Now()
	soon, far := now.Add(time.Second), now.Add(time.Hour)
	places := map[string]struct {
		bizType uint64
		shard   int
		due     time.Time
		want    dispatch.Place
	}{
		"queue": {scanned, ours, soon, dispatch.Queue},
		"owner": {scanned, others, soon, dispatch.Owner},
		"store": {scanned, ours, far, dispatch.Store},
		"slot":  {timed, ours, soon, dispatch.Slot},
		"later": {timed, ours, far, dispatch.Store},
	}
	grips := []string{"hold", "run", "claimed run", "none", "unread"}
	for name, at := range places {
		for _, grip := range grips {
			for _, kind := range []dispatch.Kind{dispatch.Inserted, dispatch.Edited, dispatch.Confirmed} {
				for _, status := range []task.Status{task.Pending, task.Dead, task.Processed, task.Cancelled} {
					if kind != dispatch.Edited && (grip != "none" && grip != "hold" || status != task.Pending) ||
						kind == dispatch.Confirmed && grip != "none" {
						continue
					}
					t.Run(fmt.Sprint(name, " ", grip, " ", kind, " ", status), func(t *testing.T) {
						c := &center{
							modes: map[uint64]task.Mode{scanned: task.ModeScan, timed: task.ModeRedis}, timed: map[uint64]bool{timed: true},
							owned: map[int]bool{ours: true}, ahead: now.Add(10 * time.Second), horizon: now.Add(10 * time.Second),
						}
						id, err := sharding.JobID(now, at.shard, 1)
						require.NoError(t, err)
						row := task.Task{JobID: id, BizType: at.bizType, ActionTime: at.due, Status: status}
						c.rows = []task.Task{row}
						q := queue.New(queue.Config{Partitions: layout.Partitions})
						source := q.AddType(task.BizType{ID: scanned})
						q.AddType(task.BizType{ID: timed})
						d := c.dispatcher(q)
						require.Equal(t, at.want, d.Where(&row))

						change := dispatch.Change{Kind: kind, Row: &row, Fresh: true}
						p := layout.Partition(at.shard)
						isRun := grip == "run" || grip == "claimed run"
						switch {
						case grip == "hold":
							change.Hold, err = q.Hold(t.Context(), id, p)
							require.NoError(t, err)
						case isRun:
							started := row
							started.BizType, started.ActionTime = scanned, now.Add(-time.Second)
							q.Offer(nil, queue.Item{Task: started, Partition: p, Claimed: grip == "claimed run"})
							taken, err := source.Take(t.Context(), 1)
							require.NoError(t, err)
							change.Entry = taken[0]
						case grip == "unread":
							change = dispatch.Change{JobID: id, Status: status}
						}
						d.Moved(change)

						pending := status == task.Pending && kind != dispatch.Confirmed
						inQueue := pending && at.want == dispatch.Queue
						require.Equal(t, inQueue, q.Look(id).State != queue.Absent)
						require.Equal(t, pending && at.want == dispatch.Owner, len(c.notified) == 1, "its owner")
						toldTimer := true
						switch {
						case isRun:
							toldTimer = pending && !inQueue && (grip == "run" || at.want == dispatch.Owner)
						case grip == "none" || grip == "unread":
							toldTimer = !inQueue
						}
						require.Equal(t, toldTimer, len(c.told) == 1, "the redis engine")
						for _, told := range c.told {
							require.Equal(t, id, told.JobID)
							require.Equal(t, status, told.Status)
							if isRun || pending && grip == "unread" {
								require.Equal(t, dispatch.Inserted, told.Kind)
							} else {
								require.Equal(t, kind, told.Kind)
							}
						}
					})
				}
			}
		}
	}
}

// A task that has come into the queue of this node goes to the new owner if the partition is lost meanwhile.
func TestMovedLosesThePartition(t *testing.T) {
	now := time.Now()
	c := &center{modes: map[uint64]task.Mode{scanned: task.ModeScan}, owned: map[int]bool{ours: true}, ahead: now.Add(time.Minute)}
	id, err := sharding.JobID(now, ours, 1)
	require.NoError(t, err)
	q := queue.New(queue.Config{Partitions: layout.Partitions})
	q.AddType(task.BizType{ID: scanned})
	d := dispatch.New(dispatch.Config{Layout: layout, Queue: q, Store: c, Ownership: &once{}, Scanner: scanEngine{c}, Nodes: c})
	h, err := q.Hold(t.Context(), id, ours)
	require.NoError(t, err)
	d.Moved(dispatch.Change{Row: &task.Task{JobID: id, BizType: scanned, ActionTime: now}, Hold: h})
	require.Equal(t, queue.Absent, q.Look(id).State)
	require.Equal(t, []uint64{id}, c.notified)
}

// once owns the partitions when it is asked the first time.
type once struct{ asked bool }

func (o *once) Owns(int) bool {
	first := !o.asked
	o.asked = true
	return first
}
