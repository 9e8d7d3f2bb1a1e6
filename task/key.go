package task

import "time"

// Key is the place of a pending task in the order of action_time, then job_id.
type Key struct {
	ActionTime time.Time
	JobID      uint64
}

// Before reports whether k comes before l.
func (k Key) Before(l Key) bool {
	if !k.ActionTime.Equal(l.ActionTime) {
		return k.ActionTime.Before(l.ActionTime)
	}
	return k.JobID < l.JobID
}

// KeyOf is the place of a task.
func KeyOf(t *Task) Key { return Key{t.ActionTime, t.JobID} }
