package intake

import (
	"context"

	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/task"
)

// MaxWake is the maximum number of tasks for one Wake.
const MaxWake = 1000

// Wake queues or arms tasks that another node has just stored, so they do not wait for the next tick: it is the
// receiving side of dispatch.Nodes. It returns the number of queued tasks. It ignores tasks that are not
// pending, or not in a partition of this node.
func (s *Service) Wake(ctx context.Context, jobIDs []uint64) (taken int) {
	reads := make(map[int]*queue.Read)
	defer func() {
		for _, r := range reads {
			r.End()
		}
	}()
	ours := make([]uint64, 0, len(jobIDs))
	for _, id := range jobIDs {
		p, err := s.partition(id)
		if err != nil || !s.owns(p) {
			continue
		}
		if reads[p] == nil {
			reads[p] = s.cfg.Queue.BeginRead(p)
		}
		ours = append(ours, id)
	}
	if len(ours) == 0 {
		return 0
	}
	rows, _ := s.cfg.Store.Load(ctx, ours) // the scanner finds the rows that could not be read
	items := make(map[int][]queue.Item)
	var rest []task.Task
	for _, t := range rows {
		p, _ := s.partition(t.JobID)
		switch {
		case t.Status != task.Pending:
		case s.cfg.Dispatch.Where(&t) == dispatch.Queue:
			items[p] = append(items[p], queue.Item{Task: t, Partition: p})
		default:
			rest = append(rest, t)
		}
	}
	for p, list := range items {
		s.cfg.Queue.Offer(reads[p], list...)
		if !s.dropLost(p) {
			taken += len(list)
		}
	}
	s.cfg.Dispatch.Place(rest...) // last, since it may wait for Redis
	return taken
}
