package why

import (
	"cmp"
	"fmt"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/task"
)

// Of explains a task.
func Of(f Facts) api.Why {
	w := api.Why{State: api.WhyUnknown, Where: f.where(), Node: f.Node, Next: api.Time(f.next()), Because: []string{},
		FailedRuns: api.FailedRunsOf(f.Failed)}
	if f.Unread == nil {
		w.State = f.Task.Status.String()
	}
	list := causes
	if f.isDone() {
		list = ends
	}
	for _, cause := range list {
		if text := cause(&f); text != "" {
			w.Because = append(w.Because, text)
		}
	}
	if len(w.Because) == 0 {
		w.Because = []string{fmt.Sprintf("nothing that node %s knows of holds it", f.Node)}
	}
	return w
}

func (f *Facts) isDone() bool { return f.Unread == nil && f.Task.Status != task.Pending }

// isDue reports whether the task's time has come. One without a row is not.
func (f *Facts) isDue() bool { return f.Unread == nil && !f.Task.ActionTime.After(f.Now) }

// isQueued reports whether the task waits in the queue of this node.
func (f *Facts) isQueued() bool {
	return f.Queue.Seen.State != queue.Absent && f.Queue.Seen.State != queue.Running
}

// isLeased reports whether a consumer has the task.
func (f *Facts) isLeased() bool { return f.Unread == nil && f.Task.IsLeased(f.Now) }

func (f *Facts) isRunning() bool { return f.Queue.Seen.State == queue.Running }

// where names the place of the task.
func (f *Facts) where() string {
	switch {
	case f.isDone():
		return api.WhyDone
	case f.isRunning() || f.isLeased():
		return api.WhyRunning
	case f.isQueued():
		return api.WhyQueue
	case f.Unread == nil && f.Place == dispatch.Slot && f.Partition.Owned && !f.Found.Lacks: // only the owner looks
		return api.WhySlot
	default:
		return api.WhyStore
	}
}

// next is when something should happen to the task; zero: nobody can say.
func (f *Facts) next() time.Time {
	switch {
	case f.isDone() || f.Unread != nil:
		return time.Time{}
	case f.isRunning() && f.Run.Timeout > 0:
		return f.Queue.Seen.Since.Add(f.Run.Timeout)
	case f.isRunning():
		return time.Time{}
	case !f.isDue():
		return f.Task.ActionTime
	case f.Paused != nil:
		return f.Paused.Until.Time()
	case f.Partition.Owned && f.Scan.Serves && !f.isQueued():
		return f.Scan.Next
	default:
		return time.Time{}
	}
}

// typeName is the business type for a reader.
func (f *Facts) typeName() string {
	if f.Type == nil {
		return fmt.Sprintf("biz_type %d", f.Task.BizType)
	}
	return f.Type.Name
}

// moment writes a time as everywhere in the API.
func moment(t time.Time) string { return api.Time(t).String() }

// ago writes how long something lasts, to a second; below ten seconds to a millisecond.
func (f *Facts) ago(since time.Time) string {
	d := max(0, f.Now.Sub(since))
	if d < 10*time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// since writes " for 40s", or nothing if it is not known since when.
func (f *Facts) since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " for " + f.ago(t)
}

// times writes a number of times.
func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// lastError writes what the last run answered.
func (f *Facts) lastError() string { return cmp.Or(f.Task.LastError, "unknown") }
