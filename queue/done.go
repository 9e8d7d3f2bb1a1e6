package queue

import "github.com/timeoutcenter/toc/task"

// Done ends the run of an entry once its outcome is durable; row is the task as
// it stands in the store now. The receipt is told. If the task is to run again
// and again is true, it takes its place in the queue for that.
func (q *Queue) Done(e *Entry, row task.Task, again bool) {
	var back left
	q.mu.Lock()
	q.bury(e)
	if again {
		back = q.offerOf(e.term, &Item{Task: row, Partition: e.Partition})
	}
	q.mu.Unlock()
	back.tell()
	if e.Receipt != nil {
		e.Receipt.Settled(row)
	}
}

// Return gives an entry that was taken but not started back untouched.
func (q *Queue) Return(e *Entry) {
	q.mu.Lock()
	q.forget(e)
	q.mu.Unlock()
	left{e}.tell()
}
