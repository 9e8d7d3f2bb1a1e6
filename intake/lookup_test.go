package intake_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/task"
)

func TestGet(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		row := r.order(1, time.Hour)
		got, err := r.Get(t.Context(), row.JobID)
		require.NoError(t, err)
		require.Equal(t, row, got)
		_, err = r.Get(t.Context(), row.JobID+1)
		require.ErrorIs(t, err, task.ErrNotFound)
		_, err = r.Get(t.Context(), 1<<63)
		require.ErrorIs(t, err, task.ErrNotFound)
	})
}

func jobIDs(p api.Page) (ids []uint64) {
	for _, t := range p.Tasks {
		ids = append(ids, uint64(t.JobID))
	}
	return ids
}

func TestListPagesThroughABizID(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var want []uint64
		for range 7 {
			want = append(want, r.order(1, time.Hour).JobID)
			r.order(9, time.Hour) // the same table, another biz_id
		}
		var got []uint64
		var sizes []int
		for cursor := ""; ; {
			page, err := r.List(t.Context(), api.List{BizID: 1, Cursor: cursor, Limit: 3})
			require.NoError(t, err)
			got, sizes = append(got, jobIDs(page)...), append(sizes, len(page.Tasks))
			if cursor = page.NextCursor; cursor == "" {
				break
			}
		}
		require.Equal(t, want, got)
		require.Equal(t, []int{3, 3, 1}, sizes)

		page, err := r.List(t.Context(), api.List{BizID: 1, Limit: 7})
		require.NoError(t, err)
		require.Empty(t, page.NextCursor, "a page that is just full is the last")
		page, err = r.List(t.Context(), api.List{BizID: 2, Limit: 7})
		require.NoError(t, err)
		require.Empty(t, page.Tasks)
	})
}

func TestListNarrows(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		order, cancelled := r.order(1, time.Hour), r.order(1, time.Hour)
		require.NoError(t, r.Cancel(t.Context(), cancelled.JobID))
		mail, err := r.Submit(t.Context(), api.Submit{BizType: "mail", BizID: 1, Delay: time.Hour})
		require.NoError(t, err)
		for _, c := range []struct {
			bizType string
			status  string
			want    []uint64
		}{
			{"", "", []uint64{order.JobID, cancelled.JobID, mail.Task.JobID}},
			{"order_close", "", []uint64{order.JobID, cancelled.JobID}},
			{"", "pending", []uint64{order.JobID, mail.Task.JobID}},
			{"order_close", "cancelled", []uint64{cancelled.JobID}},
			{"push", "", nil},
		} {
			page, err := r.List(t.Context(), api.List{BizID: 1, BizType: c.bizType, Status: c.status, Limit: 10})
			require.NoError(t, err)
			require.Equal(t, c.want, jobIDs(page))
		}
		_, err = r.List(t.Context(), api.List{BizID: 1, BizType: "nobody", Limit: 10})
		var refused *task.FieldError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "biz_type", refused.Field)
	})
}

func TestListDeadPagesThroughAllShards(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		orders, mails := r.dead("order_close", 25), r.dead("mail", 5)
		r.order(1, time.Hour)
		all := func(bizType string) (got []uint64) {
			for cursor := ""; ; {
				page, err := r.ListDead(t.Context(), api.ListDead{BizType: bizType, Cursor: cursor, Limit: 4})
				require.NoError(t, err)
				require.LessOrEqual(t, len(page.Tasks), 4)
				got = append(got, jobIDs(page)...)
				if cursor = page.NextCursor; cursor == "" {
					return got
				}
			}
		}
		require.ElementsMatch(t, append(append([]uint64{}, orders...), mails...), all(""))
		require.ElementsMatch(t, mails, all("mail"))
		require.Empty(t, all("push"))
		_, err := r.ListDead(t.Context(), api.ListDead{BizType: "nobody"})
		var refused *task.FieldError
		require.ErrorAs(t, err, &refused)
	})
}
