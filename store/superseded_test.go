package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/task"
)

// A task is superseded by a later one of its type and biz_id that is due, and pending or processed.
func findsSuperseded(t *testing.T, p place) {
	f := p.open(t, small)
	now := f.in(0)
	put := func(t2 task.Task) task.Task { return f.put(t, t2)[0] }
	first := put(task.Task{BizID: 9, BizType: 1, ActionTime: f.in(-30)})
	same := put(task.Task{BizID: 9, BizType: 1, ActionTime: f.in(-30)}) // its job_id is greater
	later := put(task.Task{BizID: 9, BizType: 1, ActionTime: f.in(-10)})
	put(task.Task{BizID: 9, BizType: 1, ActionTime: f.in(10)})           // not due
	other := put(task.Task{BizID: 9, BizType: 2, ActionTime: f.in(-60)}) // of another type
	text := put(task.Task{BizID: 9, BizKey: "k", BizType: 1, ActionTime: f.in(-40)})
	dead := put(task.Task{BizID: 17, BizType: 1, ActionTime: f.in(-40)})
	f.setStatus(t, task.Dead, put(task.Task{BizID: 17, BizType: 1, ActionTime: f.in(-20)}))
	done := put(task.Task{BizID: 25, BizType: 1, ActionTime: f.in(-40)})
	f.setStatus(t, task.Processed, put(task.Task{BizID: 25, BizType: 1, ActionTime: f.in(-20)}))

	byDatabase := map[int][]task.Task{}
	for _, one := range []task.Task{first, same, later, other, text, dead, done} {
		shard, _ := f.layout.ShardOf(one.JobID)
		d := f.layout.Database(shard)
		byDatabase[d] = append(byDatabase[d], one)
	}
	found := map[uint64]bool{}
	for d, list := range byDatabase {
		part, err := f.Superseded(t.Context(), d, list, now)
		require.NoError(t, err)
		for id := range part {
			found[id] = true
		}
	}
	require.Equal(t, map[uint64]bool{first.JobID: true, same.JobID: true, done.JobID: true}, found)
}
