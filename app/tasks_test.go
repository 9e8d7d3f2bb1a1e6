package app_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

// tasks is a center, in its process or far away.
type tasks = api.Center

// onBothSides runs a test with the Tasks of a center and with a Client of it. The processor fails
// tasks with the attribute dead, and holds those with the attribute hold until the test ends.
func onBothSides(t *testing.T, test func(t *testing.T, api tasks)) {
	for name, of := range map[string]func(c *center) tasks{
		"embedded": func(c *center) tasks { return c.Tasks() },
		"client":   func(c *center) tasks { return client.New(c.Addr()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := embedded(t)
			cfg.BizTypes[0].MaxRetries = 0
			cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = 4, 0
			free := make(chan struct{})
			c := run(t, cfg, app.WithProcessor("ledger", processor.Func(func(_ context.Context, row task.Task) error {
				switch row.Attribute {
				case "dead":
					return errors.New("no luck")
				case "hold":
					<-free
				}
				return nil
			})))
			defer close(free)
			test(t, of(c))
		})
	}
}

// answers says which errors of package task are in err.
func answers(err error) string {
	var said []string
	for word, known := range map[string]error{"not found": task.ErrNotFound, "unavailable": task.ErrUnavailable} {
		if errors.Is(err, known) {
			said = append(said, word)
		}
	}
	if conflict, ok := errors.AsType[*task.ConflictError](err); ok {
		said = append(said, string(conflict.Conflict))
	}
	if changed, ok := errors.AsType[*task.ChangedError](err); ok {
		said = append(said, "changed: "+changed.Task.Attribute)
	}
	if field, ok := errors.AsType[*task.FieldError](err); ok {
		said = append(said, "field "+field.Field)
	}
	return strings.Join(said, ", ")
}

func TestTasksAreSubmittedAndChanged(t *testing.T) {
	t.Parallel()
	onBothSides(t, func(t *testing.T, api tasks) {
		ctx := t.Context()
		at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		s, err := api.Submit(ctx, client.Submit{
			BizType: "order_close", BizKey: "order-6f1c", ActionTime: at, Attribute: "first", DedupKey: "unpaid", Timeout: 1500 * time.Millisecond,
		})
		require.NoError(t, err)
		require.False(t, s.Duplicate)
		require.NotEmpty(t, s.Task.ETag)
		id, key := uint64(s.Task.JobID), client.Key{BizType: "order_close", BizKey: "order-6f1c", DedupKey: "unpaid"}

		got, err := api.Get(ctx, id)
		require.NoError(t, err)
		require.Equal(t, s.Task.ETag, got.ETag)
		got.Created, got.Modified = s.Task.Created, s.Task.Modified
		require.Equal(t, s.Task, got)
		require.Equal(t, "order_close order-6f1c pending first unpaid 1.5s",
			strings.Join([]string{got.BizType, got.BizID.String(), got.Status, got.Attribute, got.DedupKey, got.Timeout.String()}, " "))
		require.WithinDuration(t, at, got.ActionTime.Time(), 0)

		byKey, err := api.GetByKey(ctx, key)
		require.NoError(t, err)
		require.Equal(t, got.JobID, byKey.JobID)

		again, err := api.Submit(ctx, client.Submit{BizType: "order_close", BizKey: "order-6f1c", Delay: time.Minute, DedupKey: "unpaid"})
		require.NoError(t, err)
		require.True(t, again.Duplicate)
		require.Equal(t, id, uint64(again.Task.JobID))
		again, err = api.Submit(ctx, client.Submit{
			BizType: "order_close", BizKey: "order-6f1c", ActionTime: at, Attribute: "moved", DedupKey: "unpaid", OnDuplicate: client.Move,
		})
		require.NoError(t, err)
		require.True(t, again.Duplicate)

		require.Equal(t, "changed: moved", answers(api.Cancel(ctx, id, client.IfMatch(s.Task.ETag))))
		changed, err := api.Reschedule(ctx, id, client.Change{Delay: new(2 * time.Hour)}, client.IfMatch("other", again.Task.ETag))
		require.NoError(t, err)
		require.True(t, changed.ActionTime.Time().After(at))
		changed, err = api.RescheduleByKey(ctx, key, client.Change{ActionTime: at, Attribute: new("second"), Timeout: time.Second})
		require.NoError(t, err)
		require.Equal(t, "second 1s", changed.Attribute+" "+changed.Timeout.String())

		require.NoError(t, api.CancelByKey(ctx, key, client.IfMatch("*")))
		require.Equal(t, "already_cancelled", answers(api.Cancel(ctx, id)))
		_, err = api.Reschedule(ctx, id, client.Change{Delay: new(time.Hour)})
		require.Equal(t, "already_cancelled", answers(err))
		_, err = api.Redrive(ctx, id)
		require.Equal(t, "already_cancelled", answers(err))

		hourAgo := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
		late := client.Submit{BizType: "order_close", BizKey: "order-6f1c", ActionTime: hourAgo, Attribute: "hold", DedupKey: "unpaid", OnDuplicate: client.Again}
		_, err = api.Submit(ctx, late)
		require.Equal(t, "field action_time", answers(err))
		late.Past = client.Fire
		fresh, err := api.Submit(ctx, late)
		require.NoError(t, err)
		require.False(t, fresh.Duplicate)
		require.NotEqual(t, s.Task.JobID, fresh.Task.JobID)
		require.WithinDuration(t, hourAgo, fresh.Task.DueTime.Time(), 0)
		byKey, err = api.GetByKey(ctx, key)
		require.NoError(t, err)
		require.Equal(t, fresh.Task.JobID, byKey.JobID)
		late.BizKey = "007"
		results, err := api.SubmitBatch(ctx, []client.Submit{late, {BizType: "order_close", BizID: 7, Delay: time.Hour, DedupKey: "unpaid"}})
		require.NoError(t, err)
		require.NotEqual(t, results[0].JobID, results[1].JobID)
		byKey, err = api.GetByKey(ctx, client.Key{BizType: "order_close", BizKey: "007", DedupKey: "unpaid"})
		require.NoError(t, err)
		require.Equal(t, "007", byKey.BizID.String())
	})
}

func TestTasksAreListed(t *testing.T) {
	t.Parallel()
	onBothSides(t, func(t *testing.T, api tasks) {
		ctx := t.Context()
		three := make([]client.Submit, 3)
		for i := range three {
			three[i] = client.Submit{BizType: "order_close", BizID: 7, Delay: time.Hour}
		}
		stored, err := api.SubmitBatch(ctx, three)
		require.NoError(t, err)
		require.Len(t, stored, 3)
		q := client.List{BizID: 7, BizType: "order_close", Status: "pending", Limit: 2}
		first, err := api.List(ctx, q)
		require.NoError(t, err)
		require.Len(t, first.Tasks, 2)
		require.Empty(t, first.Tasks[0].ETag)
		q.Cursor = first.NextCursor
		rest, err := api.List(ctx, q)
		require.NoError(t, err)
		require.Len(t, rest.Tasks, 1)
		require.Equal(t, stored[2].JobID, rest.Tasks[0].JobID)
		require.Empty(t, rest.NextCursor)
		none, err := api.List(ctx, client.List{BizID: 7, Status: "dead"})
		require.NoError(t, err)
		require.Equal(t, client.Page{Tasks: []client.Task{}}, none)

		_, err = api.ListDead(ctx, client.ListDead{Cursor: first.NextCursor})
		require.Equal(t, "field cursor", answers(err), "it is another list's")
	})
}

func TestDeadTasksAreRedriven(t *testing.T) {
	t.Parallel()
	onBothSides(t, func(t *testing.T, api tasks) {
		ctx := t.Context()
		dead := func() client.Page {
			p, err := api.ListDead(ctx, client.ListDead{BizType: "order_close", Limit: 1})
			require.NoError(t, err)
			return p
		}
		s, err := api.Submit(ctx, client.Submit{BizType: "order_close", BizID: 1, Now: true, Attribute: "dead"})
		require.NoError(t, err)
		id := uint64(s.Task.JobID)
		await.That(t, func() bool { return len(dead().Tasks) == 1 }, "len(dead().Tasks) == 1")
		require.Equal(t, "dead", answers(api.Cancel(ctx, id)))

		n, err := api.RedriveDead(ctx, client.RedriveDead{BizType: "order_close", DryRun: true})
		require.NoError(t, err)
		require.Equal(t, client.Redriven{Matched: 1}, n)
		n, err = api.RedriveDead(ctx, client.RedriveDead{})
		require.NoError(t, err)
		require.Equal(t, client.Redriven{Matched: 1, Redriven: 1}, n)
		await.That(t, func() bool { return len(dead().Tasks) == 1 }, "len(dead().Tasks) == 1")
		pending, err := api.Redrive(ctx, id)
		require.NoError(t, err)
		require.Equal(t, "pending", pending.Status)
		require.Zero(t, pending.Attempts)
	})
}

func TestARunningTaskIsShownAndKept(t *testing.T) {
	t.Parallel()
	onBothSides(t, func(t *testing.T, api tasks) {
		s, err := api.Submit(t.Context(), client.Submit{BizType: "order_close", BizID: 1, Now: true, Attribute: "hold"})
		require.NoError(t, err)
		id := uint64(s.Task.JobID)
		await.That(t, func() bool {
			got, err := api.Get(t.Context(), id)
			return err == nil && got.Running != nil && got.Running.Node != ""
		}, "the task is shown as running")
		await.That(t, func() bool { // on a busy machine it may be unavailable first
			answer := answers(api.Cancel(t.Context(), id))
			require.Contains(t, []string{"running", "unavailable"}, answer)
			return answer == "running"
		}, "a running task is not cancelled")
	})
}

// Wrong requests are refused with the same errors, and nothing is stored.
func TestTasksRefuse(t *testing.T) {
	t.Parallel()
	onBothSides(t, func(t *testing.T, api tasks) {
		ctx := t.Context()
		hour := func(change func(s *client.Submit)) client.Submit {
			s := client.Submit{BizType: "order_close", BizID: 1, Delay: time.Hour}
			change(&s)
			return s
		}
		for name, wrong := range map[string]client.Submit{
			"field action_time":  {BizType: "order_close", BizID: 1},
			"field biz_type":     hour(func(s *client.Submit) { s.BizType = "other" }),
			"field delay":        hour(func(s *client.Submit) { s.Delay = -time.Hour }),
			"field biz_id":       hour(func(s *client.Submit) { s.BizKey = "as a text" }),
			"field attribute":    hour(func(s *client.Submit) { s.Attribute = strings.Repeat("x", task.MaxAttribute+1) }),
			"field dedup_key":    hour(func(s *client.Submit) { s.DedupKey = "\xff" }),
			"field timeout":      hour(func(s *client.Submit) { s.Timeout = -time.Second }),
			"field on_duplicate": hour(func(s *client.Submit) { s.OnDuplicate = client.Move }),
		} {
			_, err := api.Submit(ctx, wrong)
			require.Equal(t, name, answers(err), "%v", err)
		}
		_, err := api.Submit(ctx, client.Submit{BizType: "order_close", BizID: 1})
		require.ErrorContains(t, err, "action_time: is missing; give ActionTime, Delay or Now")

		good := hour(func(*client.Submit) {})
		_, err = api.SubmitBatch(ctx, []client.Submit{good, {BizType: "order_close", BizID: 1}})
		require.Equal(t, "field action_time", answers(err))
		require.ErrorContains(t, err, "task 1: ")
		for _, n := range []int{0, 10_001} {
			_, err = api.SubmitBatch(ctx, slices.Repeat([]client.Submit{good}, n))
			require.Equal(t, "field tasks", answers(err))
		}
		p, err := api.List(ctx, client.List{BizID: 1})
		require.NoError(t, err)
		require.Empty(t, p.Tasks)

		results, err := api.SubmitBatch(ctx, []client.Submit{hour(func(s *client.Submit) { s.BizType = "other" }), good})
		require.NoError(t, err)
		require.Equal(t, "field biz_type", answers(results[0].Err))
		require.Nil(t, results[1].Err)
		id := uint64(results[1].JobID)

		for want, c := range map[string]client.Change{
			"field action_time": {},
			"field delay":       {Delay: new(-time.Second)},
			"field attribute":   {Attribute: new("\xff")},
			"field timeout":     {Timeout: -time.Second},
		} {
			_, err = api.Reschedule(ctx, id, c)
			require.Equal(t, want, answers(err), "%v", err)
		}
		_, err = api.Reschedule(ctx, id, client.Change{ActionTime: time.Now(), Delay: new(time.Second)})
		require.Equal(t, "field action_time", answers(err))
		require.Equal(t, "field If-Match", answers(api.Cancel(ctx, id, client.IfMatch(`"`))))
		require.Equal(t, "changed: ", answers(api.Cancel(ctx, id, client.IfMatch())))

		for want, q := range map[string]client.List{
			"field status":   {BizID: 1, Status: "late"},
			"field limit":    {BizID: 1, Limit: 1001},
			"field cursor":   {BizID: 1, Cursor: "x"},
			"field biz_type": {BizID: 1, BizType: "other"},
			"field biz_id":   {BizID: 1, BizKey: "as a text"},
		} {
			_, err = api.List(ctx, q)
			require.Equal(t, want, answers(err), "%v", err)
		}
		_, err = api.RedriveDead(ctx, client.RedriveDead{BizType: "other"})
		require.Equal(t, "field biz_type", answers(err))

		_, err = api.Get(ctx, 1)
		require.Equal(t, "not found", answers(err))
		require.Equal(t, "not found", answers(api.Cancel(ctx, 1)))
		_, err = api.GetByKey(ctx, client.Key{BizType: "order_close", BizID: 1, DedupKey: "none"})
		require.Equal(t, "not found", answers(err))
		require.Equal(t, "field dedup_key", answers(api.CancelByKey(ctx, client.Key{BizType: "order_close", BizID: 1})))
		_, err = api.RescheduleByKey(ctx, client.Key{BizID: 1, DedupKey: "none"}, client.Change{})
		require.Equal(t, "field biz_type", answers(err))
	})
}
