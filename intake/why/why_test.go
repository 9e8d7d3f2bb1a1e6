package why_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/intake/why"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/queue/limits"
	"github.com/timeoutcenter/toc/task"
)

var now = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// Each case changes the facts of a task of mode scan that has been due for a minute on a node that is well.
func TestEachCause(t *testing.T) {
	hang := errors.New("no answer")
	for name, c := range map[string]struct {
		change  func(f *why.Facts)
		where   string
		next    time.Time
		because []string
	}{
		"store": {func(*why.Facts) {}, api.WhyStore, now.Add(4 * time.Second), []string{
			"it is only in the store: the next scan is at 2026-01-02T15:04:09.000Z"}},
		"no next tick": {func(f *why.Facts) { f.Scan.Next = time.Time{} }, api.WhyStore, time.Time{}, []string{
			"it is only in the store, and scan.schedule has no next tick"}},
		"its time has not come": {func(f *why.Facts) { f.Task.ActionTime = now.Add(30 * time.Minute) }, api.WhyStore, now.Add(30 * time.Minute), []string{
			"its time has not come: it is due at 2026-01-02T15:34:05.000Z, in 30m0s", "it is only in the store: a scan reads it in time"}},
		"starts soon": {func(f *why.Facts) { f.Task.ActionTime, f.Queue.Seen.State = now.Add(time.Second), queue.Waiting }, api.WhyQueue, now.Add(time.Second), []string{
			"its time has not come: it is due at 2026-01-02T15:04:06.000Z, in 1s", "it waits in memory on node n1 for its millisecond"}},
		"draining": {func(f *why.Facts) { f.Draining, f.Queue.Seen.State = true, queue.Held }, api.WhyQueue, time.Time{}, []string{
			"node n1 is about to stop: it starts nothing more and hands its partitions over", "a request is changing it now"}},
		"no owner": {func(f *why.Facts) { f.Partition = why.Partition{Number: 64, Lost: "lost consul"} }, api.WhyStore, time.Time{}, []string{
			"partition 64 has no owner now: no node that works holds its lock", "lost consul"}},
		"handed over": {func(f *why.Facts) { f.Partition = why.Partition{Number: 64, Owner: "n1"} }, api.WhyStore, time.Time{}, []string{
			"partition 64 is this node's, but nothing of it starts now: it is being taken or handed over, or this node's lease has ended"}},
		"another's": {func(f *why.Facts) { f.Partition = why.Partition{Number: 64, Owner: "n2", Silent: hang} }, api.WhyStore, time.Time{}, []string{
			"partition 64 is owned by node n2, which has not answered (no answer)"}},
		"database hangs": {func(f *why.Facts) {
			f.Unread, f.Task, f.Database.Down, f.Database.Since = hang, task.Task{JobID: 1}, hang, ago(40*time.Second)
		}, api.WhyStore, time.Time{}, []string{
			"database 3 is out of reach or hangs for 40s: no answer; its tasks wait until it answers"}},
		"row not read": {func(f *why.Facts) { f.Unread, f.Task = hang, task.Task{JobID: 1} }, api.WhyStore, time.Time{}, []string{
			"its row could not be read just now: no answer"}},
		"read-only": {func(f *why.Facts) {
			f.Database.Refusing, f.Database.ReadOnly, f.Queue.Seen.State = hang, true, queue.Held
		}, api.WhyQueue, time.Time{}, []string{
			"database 3 is read-only: no outcome could be recorded, so its tasks do not start", "a request is changing it now"}},
		"refuses, slow": {func(f *why.Facts) {
			f.Database.Refusing, f.Database.Slow, f.Queue.Seen.State = hang, 700*time.Millisecond, queue.Held
		}, api.WhyQueue, time.Time{}, []string{
			"database 3 refuses writes: no answer; no outcome could be recorded, so its tasks do not start",
			"database 3 is slow: an answer takes 700ms", "a request is changing it now"}},
		"outcomes": {func(f *why.Facts) {
			f.Database.Unwritten, f.Database.TableHolds, f.Queue.Seen.State = hang, true, queue.Held
		}, api.WhyQueue, time.Time{}, []string{
			"database 3: outcomes cannot be recorded, so its tasks do not start: no answer",
			"many outcomes of its table wait for locked rows, so no more of its tasks start", "a request is changing it now"}},
		"starts": {func(f *why.Facts) { f.Database.Unmarked, f.Queue.Seen.State = hang, queue.Alone }, api.WhyQueue, time.Time{}, []string{
			"rows of its table cannot be marked, so its tasks that may have ended a process do not start: no answer",
			"its last starts had no end, so it may end the process: it runs alone and waits for its turn"}},
		"not scanned": {func(f *why.Facts) { f.Scan.UnreadErr, f.Scan.UnreadSince = hang, ago(time.Minute) }, api.WhyStore, now.Add(4 * time.Second), []string{
			"database 3: some due rows cannot be read for 1m0s: no answer", "it is only in the store: the next scan is at 2026-01-02T15:04:09.000Z"}},
		"type unknown": {func(f *why.Facts) { f.Type, f.Scan = nil, why.Scan{} }, api.WhyStore, time.Time{}, []string{
			"its biz_type 7 is not configured on node n1: it stays pending until it is"}},
		"paused": {func(f *why.Facts) {
			f.Paused, f.Scan = &api.Pause{By: "api", Reason: "the shop is down", Since: api.Time(ago(time.Hour)), Until: api.Time(now.Add(time.Hour))}, why.Scan{}
		}, api.WhyStore, now.Add(time.Hour), []string{
			"business type order_close is paused by api since 2026-01-02T14:04:05.000Z, until 2026-01-02T16:04:05.000Z: the shop is down"}},
		"rate limit": {func(f *why.Facts) { f.Type.RateLimit, f.Queue.Limit = 500, limits.Rate }, api.WhyStore, now.Add(4 * time.Second), []string{
			"business type order_close is at its rate_limit (500 a second in the whole cluster)", "it is only in the store: the next scan is at 2026-01-02T15:04:09.000Z"}},
		"max running": {func(f *why.Facts) {
			f.Type.MaxRunning, f.Queue.Limit, f.Queue.Seen.State, f.Queue.Size = 20, limits.Running, queue.Waiting, 3
		}, api.WhyQueue, time.Time{}, []string{
			"business type order_close is at its max_running (20 at once in the whole cluster)",
			"it is due and is among the 3 tasks of order_close in memory on node n1; a worker takes it next"}},
		"catch up": {func(f *why.Facts) { f.Type.CatchUp, f.Queue.Limit = 50, limits.CatchUp }, api.WhyStore, now.Add(4 * time.Second), []string{
			"business type order_close is at its catch_up: of what is overdue by more than 10s, 50 a second start in the whole cluster, behind the others",
			"it is only in the store: the next scan is at 2026-01-02T15:04:09.000Z"}},
		"retries busy": {func(f *why.Facts) {
			f.Task.Attempts, f.Task.LastError, f.Queue.Workers, f.Queue.Busy, f.Queue.Seen = 1, "boom", 8, 2, queue.Sight{State: queue.Waiting, Retry: true}
		}, api.WhyQueue, time.Time{}, []string{
			"it has failed once; the last error: boom", "it has failed before, and such tasks take a quarter of the 8 workers of order_close at most, which is busy"}},
		"paused, in redis": {func(f *why.Facts) {
			inRedis(f, why.Slot{Key: "order_close_64"})
			f.Paused = &api.Pause{By: "sql", Since: api.Time(ago(time.Hour))}
		}, api.WhySlot, time.Time{}, []string{
			"business type order_close is paused by sql since 2026-01-02T14:04:05.000Z, until it is resumed", "it is in its slot order_close_64 in Redis and was due 1m0s ago"}},
		"slot": {func(f *why.Facts) { inRedis(f, why.Slot{Key: "order_close_64"}) }, api.WhySlot, time.Time{}, []string{
			"it is in its slot order_close_64 in Redis and was due 1m0s ago"}},
		"only the owner looks into Redis": {func(f *why.Facts) {
			inRedis(f, why.Slot{})
			f.Task.ActionTime, f.Partition.Owned, f.Partition.Owner = now.Add(time.Minute), false, "n2"
		}, api.WhyStore, now.Add(time.Minute), []string{"partition 64 is owned by node n2, which has not answered", "its time has not come: it is due at 2026-01-02T15:05:05.000Z, in 1m0s"}},
		"not in its slot": {func(f *why.Facts) { inRedis(f, why.Slot{Key: "order_close_64"}); f.Found.Lacks = true }, api.WhyStore, time.Time{}, []string{
			"it is not in its slot order_close_64 in Redis, as after a change by SQL; node n1 puts it there within seconds"}},
		"not in its slot, later": {func(f *why.Facts) {
			inRedis(f, why.Slot{Key: "order_close_64"})
			f.Task.ActionTime, f.Found.Lacks = now.Add(time.Minute), true
		}, api.WhyStore, now.Add(time.Minute), []string{"its time has not come: it is due at 2026-01-02T15:05:05.000Z, in 1m0s",
			"it is not in its slot order_close_64 in Redis, as after a change by SQL; node n1 puts it there within seconds"}},
		"later in its slot": {func(f *why.Facts) {
			inRedis(f, why.Slot{Key: "order_close_64"})
			f.Task.ActionTime, f.Found.At = now.Add(time.Minute), now.Add(2*time.Minute)
		}, api.WhySlot, now.Add(time.Minute), []string{"its time has not come: it is due at 2026-01-02T15:05:05.000Z, in 1m0s",
			"it is in its slot order_close_64 in Redis only at 2026-01-02T15:06:05.000Z, as after a change by SQL; node n1 corrects that within seconds of its time"}},
		"later in its slot, and due": {func(f *why.Facts) {
			inRedis(f, why.Slot{Key: "order_close_64"})
			f.Found.At = now.Add(2 * time.Minute)
		}, api.WhySlot, time.Time{}, []string{
			"it is in its slot order_close_64 in Redis only at 2026-01-02T15:06:05.000Z, as after a change by SQL; node n1 corrects that within seconds of its time"}},
		"a slot that does not answer": {func(f *why.Facts) {
			inRedis(f, why.Slot{Key: "order_close_64"})
			f.Found.Err = errors.New("read slot: i/o timeout")
		}, api.WhySlot, time.Time{}, []string{"it should be in its slot order_close_64 in Redis, which does not say so: read slot: i/o timeout"}},
		"slot, later": {func(f *why.Facts) {
			inRedis(f, why.Slot{Key: "order_close_64", Unread: true})
			f.Task.ActionTime = now.Add(time.Minute)
		}, api.WhySlot, now.Add(time.Minute), []string{
			"the rows of its slot order_close_64 in Redis have not been read yet", "its time has not come: it is due at 2026-01-02T15:05:05.000Z, in 1m0s",
			"it is in its slot order_close_64 in Redis; node n1 claims it at its time"}},
		"beyond the horizon": {func(f *why.Facts) {
			inRedis(f, why.Slot{Key: "order_close_64"})
			f.Place, f.Task.ActionTime = dispatch.Store, now.Add(time.Hour)
		}, api.WhyStore, now.Add(time.Hour), []string{
			"its time has not come: it is due at 2026-01-02T16:04:05.000Z, in 1h0m0s", "it is only in the store: it comes into its slot in Redis some seconds before its time"}},
		"redis silent": {func(f *why.Facts) {
			inRedis(f, why.Slot{Key: "order_close_64", Unreachable: ago(2 * time.Second), Cause: "answers: BUSY", Refusing: hang})
		}, api.WhySlot, time.Time{}, []string{
			"Redis is out of reach for its slot order_close_64 for 2s, and the scan engine takes over after redis.outage_after: Redis answers: BUSY",
			"Redis refuses writes: no answer", "it is in its slot order_close_64 in Redis and was due 1m0s ago"}},
		"redis away": {func(f *why.Facts) {
			f.Slot = why.Slot{Key: "order_close_64", Unreachable: ago(time.Minute), Cause: "does not answer: i/o timeout", Fallback: true, Unread: true}
		}, api.WhyStore, now.Add(4 * time.Second), []string{
			"Redis is out of reach for its slot for 1m0s, so the scan engine serves it: Redis does not answer: i/o timeout", "it is only in the store: the next scan is at 2026-01-02T15:04:09.000Z"}},
		"slot of another store": {func(f *why.Facts) { f.Slot = why.Slot{Key: "order_close_64", Foreign: true} }, api.WhyStore, now.Add(4 * time.Second), []string{
			"its slot order_close_64 in Redis belongs to another store, so the scan engine serves it; give each center its own redis.prefix",
			"it is only in the store: the next scan is at 2026-01-02T15:04:09.000Z"}},
		"clock": {func(f *why.Facts) {
			f.Clock, f.Queue.Seen = "this machine's clock is off", queue.Sight{State: queue.Checking, Since: ago(3 * time.Second)}
		}, api.WhyQueue, time.Time{}, []string{
			"this machine's clock is off", "its row is being read again before it starts, for 3s"}},
		"back-off": {func(f *why.Facts) {
			f.Task.Attempts, f.Task.LastError, f.Task.ActionTime = 3, "webhook answered 500", now.Add(time.Minute)
		}, api.WhyStore, now.Add(time.Minute), []string{
			"it has failed 3 times and waits for its back-off until 2026-01-02T15:05:05.000Z; the last error: webhook answered 500",
			"it is only in the store: a scan reads it in time"}},
		"failed, due": {func(f *why.Facts) { f.Task.Attempts, f.Queue.Seen.State = 1, queue.Held }, api.WhyQueue, time.Time{}, []string{
			"it has failed once; the last error: unknown", "a request is changing it now"}},
		"runs": {func(f *why.Facts) {
			f.Queue.Seen, f.Run.Timeout = queue.Sight{State: queue.Running, Since: ago(2 * time.Second)}, 5*time.Second
		},
			api.WhyRunning, now.Add(3 * time.Second), []string{"it runs on node n1 for 2s; its time-out is 5s"}},
		"runs too long": {func(f *why.Facts) {
			f.Queue.Seen, f.Run.Timeout = queue.Sight{State: queue.Running, Since: ago(time.Minute)}, 5*time.Second
		},
			api.WhyRunning, ago(55 * time.Second), []string{"it runs on node n1 for 1m0s and ignores its time-out of 5s"}},
		"taken": {func(f *why.Facts) {
			f.Queue.Seen = queue.Sight{State: queue.Running, Since: ago(20 * time.Millisecond)}
		}, api.WhyRunning, time.Time{}, []string{
			"a worker of node n1 has had it for 20ms: its run is about to start, or its outcome is being recorded"}},
		"row locked": {func(f *why.Facts) { f.Queue.Seen.State, f.Run.WaitsSince = queue.Running, ago(12*time.Second) }, api.WhyRunning, time.Time{}, []string{
			"its run has ended, and its outcome waits for 12s: another transaction has locked the row"}},
		"table gone": {func(f *why.Facts) {
			f.Queue.Seen.State, f.Run = queue.Running, why.Run{WaitsSince: ago(12 * time.Second), TableErr: hang}
		}, api.WhyRunning, time.Time{}, []string{
			"its run has ended, and its outcome waits for 12s: its table cannot be written: no answer"}},
		"workers busy": {func(f *why.Facts) {
			f.Queue = why.Queue{Seen: queue.Sight{State: queue.Waiting}, Size: 310, Capacity: 1000, Workers: 8, Busy: 8, Oldest: ago(12 * time.Second)}
		}, api.WhyQueue, time.Time{}, []string{
			"it waits for a worker: all 8 workers of order_close on node n1 are busy, the longest for 12s; 310 tasks of its type are in memory"}},
		"worker busy": {func(f *why.Facts) {
			f.Queue = why.Queue{Seen: queue.Sight{State: queue.Waiting}, Size: 2, Capacity: 1000, Workers: 1, Busy: 1, Oldest: ago(12 * time.Second)}
		}, api.WhyQueue, time.Time{}, []string{
			"it waits for the only worker of order_close on node n1, which has been busy for 12s; 2 tasks of its type are in memory"}},
		"no consumer asks": {func(f *why.Facts) {
			f.Type.Pull, f.Type.MaxInFlight = true, 3
			f.Queue = why.Queue{Seen: queue.Sight{State: queue.Waiting}, Size: 3, Capacity: 1000, Busy: 2}
		}, api.WhyQueue, time.Time{}, []string{
			"it is due and waits for a consumer: order_close is pulled, by POST /v1/biz-types/order_close/lease or toc pull; a node's consumers have at most 3 tasks at once"}},
		"max_in_flight": {func(f *why.Facts) {
			f.Type.Pull, f.Type.MaxInFlight = true, 3
			f.Queue = why.Queue{Seen: queue.Sight{State: queue.Waiting}, Size: 3, Capacity: 1000, Busy: 3}
		}, api.WhyQueue, time.Time{}, []string{
			"consumers have 3 tasks of order_close from node n1, as many as pull.max_in_flight allows: it is handed out when one of them is settled or its lease ends"}},
		"next one": {func(f *why.Facts) {
			f.Queue = why.Queue{Seen: queue.Sight{State: queue.Waiting}, Size: 3, Capacity: 1000, Workers: 8, Busy: 2}
		}, api.WhyQueue, time.Time{}, []string{
			"it is due and is among the 3 tasks of order_close in memory on node n1; a worker takes it next"}},
		"queue full": {func(f *why.Facts) { f.Queue = why.Queue{Size: 1000, Capacity: 1000} }, api.WhyStore, now.Add(4 * time.Second), []string{
			"the queue of order_close on node n1 is full (1000 of 1000): it is taken in when there is room",
			"it is only in the store: the next scan is at 2026-01-02T15:04:09.000Z"}},
		"processed":        {func(f *why.Facts) { f.Task.Status = task.Processed }, api.WhyDone, time.Time{}, []string{"it was processed at 2026-01-02T15:03:15.000Z"}},
		"processed late":   {func(f *why.Facts) { f.Task.Status, f.Task.Attempts = task.Processed, 1 }, api.WhyDone, time.Time{}, []string{"it was processed at 2026-01-02T15:03:15.000Z, after it had failed once"}},
		"cancelled":        {func(f *why.Facts) { f.Task.Status = task.Cancelled }, api.WhyDone, time.Time{}, []string{"it was cancelled at 2026-01-02T15:03:15.000Z"}},
		"coalesced":        {func(f *why.Facts) { f.Task.Status, f.Task.LastError = task.Cancelled, "coalesced" }, api.WhyDone, time.Time{}, []string{"it was cancelled at 2026-01-02T15:03:15.000Z, because a later task of its biz_id replaced it (coalesce)"}},
		"expired":          {func(f *why.Facts) { f.Task.Status, f.Task.LastError = task.Cancelled, "expired" }, api.WhyDone, time.Time{}, []string{"it was cancelled at 2026-01-02T15:03:15.000Z, because it was too late (expire_after)"}},
		"discarded":        {func(f *why.Facts) { f.Task.Status, f.Task.LastError = task.Cancelled, "gone" }, api.WhyDone, time.Time{}, []string{"it was cancelled, or its processor discarded it, at 2026-01-02T15:03:15.000Z; the last error: gone"}},
		"dead":             {func(f *why.Facts) { f.Task.Status, f.Task.Attempts, f.Task.LastError = task.Dead, 17, "no luck" }, api.WhyDone, time.Time{}, []string{"it is dead since 2026-01-02T15:03:15.000Z: no luck; it had failed 17 times; a redrive gives it a fresh start"}},
		"skipped":          {func(f *why.Facts) { f.Task.Status, f.Task.LastError = task.Dead, "expired: 1h0m0s late" }, api.WhyDone, time.Time{}, []string{"it is dead since 2026-01-02T15:03:15.000Z: expired: 1h0m0s late; a redrive gives it a fresh start"}},
		"nothing is known": {func(f *why.Facts) { f.Queue.Seen.State = "odd" }, api.WhyQueue, time.Time{}, []string{"nothing that node n1 knows of holds it"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := overdue()
			c.change(&f)
			said := why.Of(f)
			require.Equal(t, c.because, said.Because)
			require.Equal(t, c.where, said.Where)
			require.Equal(t, api.Time(c.next), said.Next)
			require.Equal(t, "n1", said.Node)
			state := api.WhyUnknown
			if f.Unread == nil {
				state = f.Task.Status.String()
			}
			require.Equal(t, state, said.State)
		})
	}
}

func overdue() why.Facts {
	return why.Facts{
		Now: now, Node: "n1", Type: &task.BizType{ID: 7, Name: "order_close"}, Place: dispatch.Queue,
		Task:      task.Task{JobID: 1, BizType: 7, ActionTime: ago(time.Minute), Modified: ago(50 * time.Second)},
		Partition: why.Partition{Number: 64, Owned: true, Owner: "n1"},
		Database:  why.Database{Number: 3},
		Scan:      why.Scan{Serves: true, Next: now.Add(4 * time.Second), Until: now.Add(10 * time.Second)},
	}
}

// inRedis makes the redis engine serve the task.
func inRedis(f *why.Facts, s why.Slot) { f.Slot, f.Place, f.Scan = s, dispatch.Slot, why.Scan{} }
