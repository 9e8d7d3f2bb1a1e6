package why

import (
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/queue/limits"
	"github.com/timeoutcenter/toc/task"
)

// Facts are a node's facts about one task. Zero values mean that nothing is wrong.
type Facts struct {
	Now    time.Time
	Node   string           // the node that has these facts
	Task   task.Task        // its row; only the JobID if Unread is set
	Unread error            // why the row cannot be read
	Failed []task.FailedRun // its failed runs, the oldest first
	Type   *task.BizType    // nil: its business type is not configured

	Partition Partition
	Database  Database
	Queue     Queue
	Run       Run
	Scan      Scan
	Slot      Slot
	Found     Found

	Place    dispatch.Place // where it waits by the rules of dispatch
	Paused   *api.Pause     // of its business type; nil: it is not paused
	Draining bool           // the node is about to stop
	Clock    string         // what is wrong with the node's clock
}

// Partition is the task's partition.
type Partition struct {
	Number int
	Owned  bool   // the node works on it
	Owner  string // the node that holds its lock; empty: none does
	Silent error  // why its owner has not answered instead
	Lost   string // why this node does not know the owners
}

// Database is the database of the task's table.
type Database struct {
	Number     int
	Down       error         // why it cannot be read
	Refusing   error         // why it accepts no writes
	ReadOnly   bool          // that is so because it is read-only
	Since      time.Time     // since when it is down or refuses writes; zero: unknown
	Slow       time.Duration // the mean time of an answer, if that is long
	Unwritten  error         // why outcomes cannot be recorded there
	Unmarked   error         // why the row of a task of the same table, which may have ended a process, could not be marked before its start
	TableHolds bool          // too many outcomes of the task's table wait
}

// Queue is the queue in memory of the task's business type.
type Queue struct {
	Seen     queue.Sight // of the task
	Size     int         // tasks in memory, the running ones included
	Capacity int         // 0: there is no such queue
	Limit    limits.Kind // the limit for which tasks of the type wait now; "": none
	Workers  int         // of the business type
	Busy     int         // workers with a run under way; of a pull type, tasks that consumers have
	Oldest   time.Time   // since when the longest of these runs
}

// Run is the run of the task.
type Run struct {
	Timeout time.Duration // of the run under way; 0: there is none
	// WaitsSince is the time since when the outcome of a run that has ended waits: for a row that another
	// transaction has locked, or, with TableErr, for its table. Zero: it does not wait.
	WaitsSince time.Time
	TableErr   error
}

// Scan is the scan engine.
type Scan struct {
	Serves      bool      // it serves the task
	Next        time.Time // the next tick; zero: there is none
	Until       time.Time // it has read what is due by then
	UnreadSince time.Time // since when rows of the database cannot be read
	UnreadErr   error     // why
}

// Slot is the task's slot in Redis. The zero value belongs to a task of mode scan.
type Slot struct {
	Key         string    // of its queue in Redis; empty: there is no slot
	Foreign     bool      // it belongs to another store
	Unreachable time.Time // since when Redis does not serve it
	Cause       string    // why not, as "answers: …" or "does not answer: …"
	Fallback    bool      // for that reason the scan engine serves it
	Refusing    error     // why Redis refuses writes
	Unread      bool      // its rows have not been read yet
}

// Found is what Redis has of a task that should wait in its slot.
type Found struct {
	Lacks bool      // it does not have the task
	At    time.Time // it has the task at another time than the row
	Err   error     // why it could not be asked
}
