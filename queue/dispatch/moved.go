package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/task"
)

// Kind is what has happened to a row.
type Kind uint8

// The kinds.
const (
	Edited    Kind = iota // it was changed, and engines may have the task as it was before
	Inserted              // no engine has the task
	Confirmed             // nothing for some time: its slot may have lost the task
)

// Change is a change of a row that the store has committed.
type Change struct {
	Kind Kind
	// Row is the row after the change; nil: it was not read, and only JobID and Status are known. It must stay as it is until
	// Moved returns.
	Row    *task.Task
	JobID  uint64
	Status task.Status
	// Fresh means that Row was read after the change. Another writer may have changed other columns of a row that was not: it is
	// read again before its task starts.
	Fresh bool

	// The caller's grip on the task, which Moved ends. At most one is set.
	Hold  *queue.Hold
	Entry *queue.Entry // of a run that has ended, or of a task that a consumer has got
}

// isPending reports whether the task waits again, or still.
func (c *Change) isPending() bool { return c.Status == task.Pending }

// Bounds of the reads of rows.
const (
	readTimeout = 10 * time.Second // of each; after it a tick finds the tasks
	maxRead     = 1000
)

// Moved passes changes on; the table of the package says how. It overwrites the list. It returns how many rows it read and put into the
// queue of this node.
func (d *Dispatcher) Moved(changes ...Change) (queued int) {
	p := passed{Dispatcher: d, told: changes[:0]}
	for _, c := range changes {
		if c.Row != nil {
			c.JobID, c.Status = c.Row.JobID, c.Row.Status
		}
		p.pass(c)
	}
	for part := range slices.Chunk(p.unread, maxRead) {
		queued += p.read(part)
	}
	if len(p.away) > 0 {
		d.cfg.Nodes.Notify(p.away...)
	}
	if len(p.told) > 0 {
		d.cfg.Timer.Moved(p.told) // last, since it may wait for Redis
	}
	return queued
}

// passed is what one call of Moved passes on.
type passed struct {
	*Dispatcher
	told   []Change    // to the redis engine
	away   []task.Task // to other nodes
	unread []uint64    // tasks whose rows must be read
}

func (p *passed) pass(c Change) {
	place := Store
	if c.isPending() && c.Kind != Confirmed {
		if c.Row == nil {
			p.unread = append(p.unread, c.JobID)
			return
		}
		place = p.Where(c.Row)
	}
	switch {
	case c.Entry != nil:
		p.cfg.Queue.Done(c.Entry, *c.Row, place == Queue)
		if !c.isPending() || place == Queue || c.Entry.Claimed && place != Owner {
			return
		}
		c.Kind = Inserted // its slot, if it is in one, has not the time of the next run
	case c.Hold != nil && place == Queue:
		place = p.requeue(&c)
	case c.Hold != nil:
		c.Hold.Remove()
	case place == Queue:
		p.unread = append(p.unread, c.JobID)
		return
	}
	if place == Owner {
		p.away = append(p.away, *c.Row)
	}
	p.told = append(p.told, c)
}

// requeue ends a hold of a task that waits in the queue of this node. It returns Owner if the node has lost the partition meanwhile.
func (p *passed) requeue(c *Change) Place {
	partition := c.Hold.Partition()
	c.Hold.Requeue(queue.Item{Task: *c.Row, Partition: partition}, c.Fresh)
	if p.dropLost(partition) {
		return Owner
	}
	return Queue
}

// dropLost removes a partition's tasks from the queue again if this node has lost the partition meanwhile: the new owner must not wait
// for them. It reports whether the partition is lost.
func (d *Dispatcher) dropLost(partition int) (lost bool) {
	if d.cfg.Ownership.Owns(partition) {
		return false
	}
	d.cfg.Queue.DropPartitions(func(p int) bool { return !d.cfg.Ownership.Owns(p) })
	return true
}

// read reads rows, and returns how many of the tasks are in the queue of this node now. A tick finds the tasks whose rows could not be
// read.
func (p *passed) read(jobIDs []uint64) (queued int) {
	reads := make(map[int]*queue.Read) // by partition
	defer func() {
		for _, r := range reads {
			r.End()
		}
	}()
	for _, id := range jobIDs {
		if n, ok := p.partition(id); ok && reads[n] == nil && p.cfg.Ownership.Owns(n) {
			reads[n] = p.cfg.Queue.BeginRead(n)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	rows, _ := p.cfg.Store.Load(ctx, jobIDs)
	items := make(map[int][]queue.Item)
	for i := range rows {
		t := &rows[i]
		if t.Status != task.Pending {
			continue
		}
		n, _ := p.partition(t.JobID)
		place := p.Where(t)
		switch {
		case place == Queue && reads[n] != nil:
			items[n] = append(items[n], queue.Item{Task: *t, Partition: n})
			continue
		case place == Owner:
			p.away = append(p.away, *t)
		}
		p.told = append(p.told, Change{Kind: Inserted, Row: t, JobID: t.JobID, Status: t.Status})
	}
	for n, list := range items {
		p.cfg.Queue.Offer(reads[n], list...)
		if !p.dropLost(n) {
			queued += len(list)
		}
	}
	return queued
}

// partition returns the partition of a task; ok is false if its job_id is impossible.
func (d *Dispatcher) partition(jobID uint64) (n int, ok bool) {
	shard, ok := d.cfg.Layout.ShardOf(jobID)
	return d.cfg.Layout.Partition(shard), ok
}
