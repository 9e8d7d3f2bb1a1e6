package intake_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/intake"
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

func jobIDs(p intake.Page) (ids []uint64) {
	for _, t := range p.Tasks {
		ids = append(ids, t.JobID)
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
		for after := uint64(0); ; {
			page, err := r.List(t.Context(), intake.List{BizID: 1, After: after, Limit: 3})
			require.NoError(t, err)
			got, sizes = append(got, jobIDs(page)...), append(sizes, len(page.Tasks))
			if after = page.Next; after == 0 {
				break
			}
		}
		require.Equal(t, want, got)
		require.Equal(t, []int{3, 3, 1}, sizes)

		page, err := r.List(t.Context(), intake.List{BizID: 1, Limit: 7})
		require.NoError(t, err)
		require.Zero(t, page.Next, "a page that is just full is the last")
		page, err = r.List(t.Context(), intake.List{BizID: 2, Limit: 7})
		require.NoError(t, err)
		require.Empty(t, page.Tasks)
	})
}

func TestListNarrows(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		order, cancelled := r.order(1, time.Hour), r.order(1, time.Hour)
		require.NoError(t, r.Cancel(t.Context(), cancelled.JobID))
		mail, err := r.Submit(t.Context(), intake.Submit{BizType: "mail", BizID: 1, When: intake.In(time.Hour)})
		require.NoError(t, err)
		for _, c := range []struct {
			bizType string
			status  *task.Status
			want    []uint64
		}{
			{"", nil, []uint64{order.JobID, cancelled.JobID, mail.Task.JobID}},
			{"order_close", nil, []uint64{order.JobID, cancelled.JobID}},
			{"", ref(task.Pending), []uint64{order.JobID, mail.Task.JobID}},
			{"order_close", ref(task.Cancelled), []uint64{cancelled.JobID}},
			{"push", nil, nil},
		} {
			page, err := r.List(t.Context(), intake.List{BizID: 1, BizType: c.bizType, Status: c.status, Limit: 10})
			require.NoError(t, err)
			require.Equal(t, c.want, jobIDs(page))
		}
		_, err = r.List(t.Context(), intake.List{BizID: 1, BizType: "nobody", Limit: 10})
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
			for after := uint64(0); ; {
				page, err := r.ListDead(t.Context(), intake.Dead{BizType: bizType}, after, 4)
				require.NoError(t, err)
				require.LessOrEqual(t, len(page.Tasks), 4)
				got = append(got, jobIDs(page)...)
				if after = page.Next; after == 0 {
					return got
				}
			}
		}
		require.ElementsMatch(t, append(append([]uint64{}, orders...), mails...), all(""))
		require.ElementsMatch(t, mails, all("mail"))
		require.Empty(t, all("push"))
		_, err := r.ListDead(t.Context(), intake.Dead{BizType: "nobody"}, 0, 4)
		var refused *task.FieldError
		require.ErrorAs(t, err, &refused)
	})
}
