package app_test

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// A change that another caller or plain SQL has made is never overwritten by a caller that has not seen it.
func TestNothingIsOverwritten(t *testing.T) {
	onBoth(t, nothingIsOverwritten)
}

func nothingIsOverwritten(t *testing.T, cfg configs.Config) {
	cfg.Node.Name = "n1"
	started, release := make(chan task.Task, 1), make(chan struct{})
	c := run(t, cfg, app.WithProcessor("ledger", processorFunc(func(_ context.Context, t task.Task) error {
		started <- t
		<-release
		return nil
	})))
	api, ctx := askHTTP(c), t.Context()
	const uuid = "6f1c0b6e-9a53-4a3f-8c6e-1d2f3a4b5c6d"
	number := task.HashBizKey(uuid)
	key := client.Key{BizType: "order_close", BizKey: uuid, DedupKey: "unpaid"}

	s, err := api.Submit(ctx, client.Submit{
		BizType: "order_close", BizKey: uuid, Delay: time.Hour, DedupKey: key.DedupKey, Timeout: 90 * time.Second, Attribute: "é\x00'\\",
	})
	require.NoError(t, err)
	id := uint64(s.Task.JobID)
	got, err := api.Get(ctx, id)
	require.NoError(t, err)
	require.Equal(t, s.Task, got, "the tag of what was answered is that of the row")
	got, err = api.GetByKey(ctx, key)
	require.NoError(t, err)
	require.Equal(t, s.Task, got)

	// A hand has been at it: the old tag is none any more, whatever was changed.
	a := admin{t, cfg}
	mine, later := "mine", 2*time.Hour
	for _, set := range []string{"attribute = 'by hand'", "attempts = attempts + 1", "due_time = '2030-01-02 03:04:05.678'", "timeout_ms = NULL", "last_error = 'x'"} {
		a.exec(number, "UPDATE %s SET "+set+" WHERE job_id = ?", signed(cfg, id))
		_, err = api.Reschedule(ctx, id, client.Change{Attribute: &mine, Delay: &later}, client.IfMatch(got.ETag))
		var refused *client.Error
		require.ErrorAs(t, err, &refused, set)
		require.Equal(t, http.StatusPreconditionFailed, refused.Status)
		require.NotEqual(t, got.ETag, refused.Task.ETag)
		require.Equal(t, got.ActionTime, refused.Task.ActionTime, "nothing was changed")
		require.Equal(t, "by hand", refused.Task.Attribute)
		require.ErrorAs(t, api.Cancel(ctx, id, client.IfMatch(got.ETag)), &refused)
		require.Equal(t, http.StatusPreconditionFailed, refused.Status)
		got, err = api.Get(ctx, id)
		require.NoError(t, err)
		require.Equal(t, refused.Task, &got)
	}
	got, err = api.Reschedule(ctx, id, client.Change{Attribute: &mine, Delay: &later}, client.IfMatch(got.ETag))
	require.NoError(t, err)
	require.Equal(t, got.ActionTime, got.DueTime, "a new promise")

	// Of many with one tag, one wins.
	var all sync.WaitGroup
	var won atomic.Int64
	for i := range 8 {
		all.Go(func() {
			name := strconv.Itoa(i)
			if _, err := api.Reschedule(ctx, id, client.Change{Attribute: &name}, client.IfMatch(got.ETag)); err == nil {
				won.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, won.Load())

	// A row of a text that was inserted by hand is found by the text, too.
	byHand, hash := a.jobID(number), "CONV(LEFT(MD5('"+uuid+"'), 16), 16, 10)"
	if cfg.Store.Driver == configs.DriverSQLite {
		hash = strconv.FormatInt(int64(number), 10)
	}
	a.exec(number, "INSERT INTO %s (job_id, biz_id, biz_type, action_time, biz_key) VALUES (?, "+hash+", 1, '2030-01-01 00:00:00.000', '"+uuid+"')",
		signed(cfg, byHand))
	page, err := api.List(ctx, client.List{BizKey: uuid})
	require.NoError(t, err)
	require.Len(t, page.Tasks, 2)
	require.Equal(t, uuid, page.Tasks[1].BizID.String())
	page, err = api.List(ctx, client.List{BizID: number})
	require.NoError(t, err)
	require.Empty(t, page.Tasks)

	// A submit under the same key moves the task; it runs, and later calls see that.
	moved, err := api.Submit(ctx, client.Submit{BizType: "order_close", BizKey: uuid, DedupKey: key.DedupKey, Attribute: "now", OnDuplicate: client.Move, Now: true})
	require.NoError(t, err)
	require.True(t, moved.Duplicate)
	require.EqualValues(t, id, moved.Task.JobID)
	runs := <-started
	require.Equal(t, []any{id, number, uuid, "now"}, []any{runs.JobID, runs.BizID, runs.BizKey, runs.Attribute})
	got, err = api.GetByKey(ctx, key)
	require.NoError(t, err)
	require.NotNil(t, got.Running)
	require.Equal(t, "n1", got.Running.Node)
	require.Equal(t, moved.Task.ETag, got.ETag, "that it runs is no change")
	var refused *client.Error
	again := client.Submit{BizType: "order_close", BizKey: uuid, Delay: time.Hour, DedupKey: key.DedupKey, OnDuplicate: client.Move}
	_, err = api.Submit(ctx, again)
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "running", refused.Outcome)
	close(release)
	await.That(t, func() bool {
		got, err = api.GetByKey(ctx, key)
		return err == nil && got.Status == "processed"
	}, "the task is processed")
	require.Nil(t, got.Running)
	require.EventuallyWithT(t, func(t *assert.CollectT) { // the row is written a moment before the run is over
		_, err = api.Submit(ctx, again)
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "already_processed", refused.Outcome)
	}, await.Patience, 10*time.Millisecond)
}

// signed is an id as a parameter of a hand's statement.
func signed(cfg configs.Config, id uint64) any {
	if cfg.Store.Driver == string(store.SQLite) {
		return int64(id)
	}
	return id
}
