package why

import (
	"fmt"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/queue/limits"
	"github.com/timeoutcenter/toc/task"
)

// cause is one reason why a task waits. It returns a sentence, or "" if it does not apply.
type cause func(f *Facts) string

// causes are those of a pending task, and of one whose row cannot be read. What holds many tasks is first, what
// concerns this one alone is last.
var causes = []cause{
	draining, noOwner, clusterLost,
	databaseDown, databaseRefuses, databaseSlow, rowUnread, outcomesFail, startsFail, tableHolds, scanIncomplete,
	typeUnknown, typePaused,
	slotForeign, redisAway, redisRefuses, slotUnread,
	clockWrong,
	leased, failedBefore, timeToCome,
	limited, running, outcomeWaits, runsAlone, isBeingChanged, isBeingChecked, waitsForWorker, startsSoon,
	queueFull, inSlot, readByScan,
}

// ends are those of a task that does not run any more.
var ends = []cause{processed, cancelled, dead}

// when is a sentence, if it applies.
func when(applies bool, format string, args ...any) string {
	if !applies {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

func draining(f *Facts) string {
	return when(f.Draining, "node %s is about to stop: it starts nothing more and hands its partitions over", f.Node)
}

func noOwner(f *Facts) string {
	switch p := f.Partition; {
	case p.Owned:
		return ""
	case p.Owner == "":
		return fmt.Sprintf("partition %d has no owner now: no node that works holds its lock%s", p.Number, because(p.Silent))
	case p.Owner == f.Node:
		return fmt.Sprintf("partition %d is this node's, but nothing of it starts now: it is being taken or handed over, or this node's lease has ended%s", p.Number, because(p.Silent))
	default:
		return fmt.Sprintf("partition %d is owned by node %s, which has not answered%s", p.Number, p.Owner, because(p.Silent))
	}
}

func typePaused(f *Facts) string {
	p := f.Paused
	if p == nil {
		return ""
	}
	text := fmt.Sprintf("business type %s is paused by %s since %s, ", f.Type.Name, p.By, p.Since)
	if p.Until.IsZero() {
		text += "until it is resumed"
	} else {
		text += "until " + p.Until.String()
	}
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return text
}

func limited(f *Facts) string {
	if f.Type == nil || !f.isDue() || f.Queue.Seen.State != queue.Waiting && f.Queue.Seen.State != queue.Absent {
		return ""
	}
	var at string
	switch b := f.Type; f.Queue.Limit {
	case limits.Rate:
		at = fmt.Sprintf("rate_limit (%d a second in the whole cluster)", b.RateLimit)
	case limits.Running:
		at = fmt.Sprintf("max_running (%d at once in the whole cluster)", b.MaxRunning)
	case limits.CatchUp:
		if f.Now.Sub(f.Task.ActionTime) <= limits.LateAfter {
			return ""
		}
		at = fmt.Sprintf("catch_up: of what is overdue by more than %s, %d a second start in the whole cluster, behind the others",
			limits.LateAfter, b.CatchUp)
	default:
		return ""
	}
	return fmt.Sprintf("business type %s is at its %s", f.Type.Name, at)
}

// because adds an error to a sentence.
func because(err error) string { return when(err != nil, " (%v)", err) }

func clusterLost(f *Facts) string { return f.Partition.Lost }

func databaseDown(f *Facts) string {
	d := f.Database
	return when(d.Down != nil, "database %d is out of reach or hangs%s: %v; its tasks wait until it answers", d.Number, f.since(d.Since),
		d.Down)
}

func databaseRefuses(f *Facts) string {
	d := f.Database
	switch {
	case d.Down != nil || d.Refusing == nil:
		return ""
	case d.ReadOnly:
		return fmt.Sprintf("database %d is read-only%s: no outcome could be recorded, so its tasks do not start", d.Number, f.since(d.Since))
	default:
		return fmt.Sprintf("database %d refuses writes%s: %v; no outcome could be recorded, so its tasks do not start", d.Number,
			f.since(d.Since), d.Refusing)
	}
}

func databaseSlow(f *Facts) string {
	return when(f.Database.Slow != 0, "database %d is slow: an answer takes %s", f.Database.Number, f.Database.Slow.Round(time.Millisecond))
}

func rowUnread(f *Facts) string {
	return when(f.Unread != nil && f.Database.Down == nil, "its row could not be read just now: %v", f.Unread)
}

func outcomesFail(f *Facts) string {
	d := f.Database
	return when(d.Unwritten != nil, "database %d: outcomes cannot be recorded, so its tasks do not start: %v", d.Number, d.Unwritten)
}

func startsFail(f *Facts) string {
	return when(f.Database.Unmarked != nil,
		"rows of its table cannot be marked, so its tasks that may have ended a process do not start: %v", f.Database.Unmarked)
}

func tableHolds(f *Facts) string {
	return when(f.Database.TableHolds, "many outcomes of its table wait for locked rows, so no more of its tasks start")
}

func scanIncomplete(f *Facts) string {
	s := f.Scan
	return when(s.UnreadErr != nil && f.Database.Down == nil,
		"database %d: some due rows cannot be read%s: %v", f.Database.Number, f.since(s.UnreadSince), s.UnreadErr)
}

func typeUnknown(f *Facts) string {
	return when(f.Type == nil && f.Unread == nil,
		"its biz_type %d is not configured on node %s: it stays pending until it is", f.Task.BizType, f.Node)
}

func slotForeign(f *Facts) string {
	return when(f.Slot.Foreign,
		"its slot %s in Redis belongs to another store, so the scan engine serves it; give each center its own redis.prefix", f.Slot.Key)
}

func redisAway(f *Facts) string {
	switch s := f.Slot; {
	case s.Unreachable.IsZero():
		return ""
	case s.Fallback:
		return fmt.Sprintf("Redis is out of reach for its slot%s, so the scan engine serves it: Redis %s", f.since(s.Unreachable), s.Cause)
	default:
		return fmt.Sprintf("Redis is out of reach for its slot %s%s, and the scan engine takes over after redis.outage_after: Redis %s", s.Key,
			f.since(s.Unreachable), s.Cause)
	}
}

func redisRefuses(f *Facts) string {
	return when(f.Slot.Refusing != nil, "Redis refuses writes: %v", f.Slot.Refusing)
}

func slotUnread(f *Facts) string {
	return when(f.Slot.Unread && !f.Slot.Foreign && !f.Slot.Fallback,
		"the rows of its slot %s in Redis have not been read yet", f.Slot.Key)
}

func clockWrong(f *Facts) string { return f.Clock }

func leased(f *Facts) string {
	return when(f.isLeased(), "a consumer has leased it until %s: it settles the task by then, or that counts as a failed run",
		moment(f.Task.ActionTime))
}

func failedBefore(f *Facts) string {
	t := &f.Task
	switch {
	case f.Unread != nil || t.Attempts == 0:
		return ""
	case f.isDue() || f.isLeased():
		return fmt.Sprintf("it has failed %s; the last error: %s", times(t.Attempts), f.lastError())
	default:
		return fmt.Sprintf("it has failed %s and waits for its back-off until %s; the last error: %s", times(t.Attempts), moment(t.ActionTime),
			f.lastError())
	}
}

func timeToCome(f *Facts) string {
	t := &f.Task
	return when(f.Unread == nil && !f.isDue() && t.Attempts == 0 && !f.isLeased(),
		"its time has not come: it is due at %s, in %s", moment(t.ActionTime), t.ActionTime.Sub(f.Now).Round(time.Second))
}

func running(f *Facts) string {
	switch since := f.Queue.Seen.Since; {
	case !f.isRunning() || !f.Run.WaitsSince.IsZero():
		return ""
	case f.Run.Timeout == 0:
		return fmt.Sprintf("a worker of node %s has had it for %s: its run is about to start, or its outcome is being recorded", f.Node,
			f.ago(since))
	case f.Now.Sub(since) > f.Run.Timeout:
		return fmt.Sprintf("it runs on node %s for %s and ignores its time-out of %s", f.Node, f.ago(since), f.Run.Timeout)
	default:
		return fmt.Sprintf("it runs on node %s for %s; its time-out is %s", f.Node, f.ago(since), f.Run.Timeout)
	}
}

func outcomeWaits(f *Facts) string {
	switch r := f.Run; {
	case r.WaitsSince.IsZero():
		return ""
	case r.TableErr != nil:
		return fmt.Sprintf("its run has ended, and its outcome waits for %s: its table cannot be written: %v", f.ago(r.WaitsSince), r.TableErr)
	default:
		return fmt.Sprintf("its run has ended, and its outcome waits for %s: another transaction has locked the row", f.ago(r.WaitsSince))
	}
}

func runsAlone(f *Facts) string {
	return when(f.Queue.Seen.State == queue.Alone,
		"its last starts had no end, so it may end the process: it runs alone and waits for its turn")
}

func isBeingChanged(f *Facts) string {
	return when(f.Queue.Seen.State == queue.Held, "a request is changing it now")
}

func isBeingChecked(f *Facts) string {
	return when(f.Queue.Seen.State == queue.Checking, "its row is being read again before it starts, for %s", f.ago(f.Queue.Seen.Since))
}

func waitsForWorker(f *Facts) string {
	q := f.Queue
	switch {
	case q.Seen.State != queue.Waiting || !f.isDue():
		return ""
	case f.Type != nil && f.Type.Pull && q.Busy >= f.Type.MaxInFlight:
		return fmt.Sprintf("consumers have %d tasks of %s from node %s, as many as pull.max_in_flight allows: it is handed out when one of them is settled or its lease ends", q.Busy, f.typeName(), f.Node)
	case f.Type != nil && f.Type.Pull:
		return fmt.Sprintf("it is due and waits for a consumer: %s is pulled, by POST /v1/biz-types/%s/lease or toc pull; a node's consumers have at most %d tasks at once", f.typeName(), f.typeName(), f.Type.MaxInFlight)
	case q.Seen.Retry:
		return fmt.Sprintf("it has failed before, and such tasks take a quarter of the %d workers of %s at most, which is busy", q.Workers,
			f.typeName())
	case q.Busy < q.Workers || q.Workers == 0:
		return fmt.Sprintf("it is due and is among the %d tasks of %s in memory on node %s; a worker takes it next", q.Size, f.typeName(), f.Node)
	case q.Workers == 1:
		return fmt.Sprintf("it waits for the only worker of %s on node %s, which has been busy for %s; %d tasks of its type are in memory",
			f.typeName(), f.Node, f.ago(q.Oldest), q.Size)
	default:
		return fmt.Sprintf("it waits for a worker: all %d workers of %s on node %s are busy, the longest for %s; %d tasks of its type are in memory",
			q.Workers, f.typeName(), f.Node, f.ago(q.Oldest), q.Size)
	}
}

func startsSoon(f *Facts) string {
	return when(f.Queue.Seen.State == queue.Waiting && !f.isDue() && !f.isLeased(),
		"it waits in memory on node %s for its millisecond", f.Node)
}

func queueFull(f *Facts) string {
	q := f.Queue
	return when(q.Seen.State == queue.Absent && q.Capacity > 0 && q.Size >= q.Capacity && f.isDue(),
		"the queue of %s on node %s is full (%d of %d): it is taken in when there is room", f.typeName(), f.Node, q.Size, q.Capacity)
}

func inSlot(f *Facts) string {
	switch {
	case f.Found.Lacks:
		return fmt.Sprintf("it is not in its slot %s in Redis, as after a change by SQL; node %s puts it there within seconds", f.Slot.Key, f.Node)
	case f.where() != api.WhySlot:
		return ""
	case f.Found.Err != nil:
		return fmt.Sprintf("it should be in its slot %s in Redis, which does not say so: %v", f.Slot.Key, f.Found.Err)
	case f.Found.At.After(f.Task.ActionTime):
		return fmt.Sprintf("it is in its slot %s in Redis only at %s, as after a change by SQL; node %s corrects that within seconds of its time", f.Slot.Key,
			moment(f.Found.At), f.Node)
	case f.isDue():
		return fmt.Sprintf("it is in its slot %s in Redis and was due %s ago", f.Slot.Key, f.ago(f.Task.ActionTime))
	default:
		return fmt.Sprintf("it is in its slot %s in Redis; node %s claims it at its time", f.Slot.Key, f.Node)
	}
}

func readByScan(f *Facts) string {
	switch s := f.Scan; {
	case f.Unread != nil || f.Queue.Seen.State != queue.Absent || f.Place == dispatch.Slot || f.Type == nil || f.Paused != nil ||
		!f.Partition.Owned:
		return ""
	case !s.Serves:
		return "it is only in the store: it comes into its slot in Redis some seconds before its time"
	case f.Task.ActionTime.After(s.Until):
		return "it is only in the store: a scan reads it in time"
	case s.Next.IsZero():
		return "it is only in the store, and scan.schedule has no next tick"
	default:
		return fmt.Sprintf("it is only in the store: the next scan is at %s", moment(s.Next))
	}
}

func processed(f *Facts) string {
	t := &f.Task
	switch {
	case t.Status != task.Processed:
		return ""
	case t.Attempts > 0:
		return fmt.Sprintf("it was processed at %s, after it had failed %s", moment(t.Modified), times(t.Attempts))
	default:
		return fmt.Sprintf("it was processed at %s", moment(t.Modified))
	}
}

func cancelled(f *Facts) string {
	t := &f.Task
	switch {
	case t.Status != task.Cancelled:
		return ""
	case t.LastError == "coalesced":
		return fmt.Sprintf("it was cancelled at %s, because a later task of its biz_id replaced it (coalesce)", moment(t.Modified))
	case t.LastError == "expired":
		return fmt.Sprintf("it was cancelled at %s, because it was too late (expire_after)", moment(t.Modified))
	case t.LastError != "":
		return fmt.Sprintf("it was cancelled, or its processor discarded it, at %s; the last error: %s", moment(t.Modified), t.LastError)
	default:
		return fmt.Sprintf("it was cancelled at %s", moment(t.Modified))
	}
}

func dead(f *Facts) string {
	t := &f.Task
	if t.Status != task.Dead {
		return ""
	}
	text := fmt.Sprintf("it is dead since %s: %s", moment(t.Modified), f.lastError())
	if t.Attempts > 0 {
		text += fmt.Sprintf("; it had failed %s", times(t.Attempts))
	}
	return text + "; a redrive gives it a fresh start"
}
