package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

// The commands of the delay queue that Youzan has described, as its clients send them.
func TestYouzan(t *testing.T) {
	onSQLite(t, func(t *testing.T, cfg configs.Config) {
		c := run(t, pulled(cfg, time.Minute))
		do := func(body string) (answer map[string]any) {
			r, err := http.Post("http://"+c.Addr()+"/youzan", "application/json", bytes.NewBufferString(body))
			require.NoError(t, err)
			defer r.Body.Close()
			require.NoError(t, json.NewDecoder(r.Body).Decode(&answer))
			require.Equal(t, http.StatusOK, r.StatusCode, "as Youzan's")
			require.Equal(t, answer["error"] == nil, answer["success"], answer)
			return answer
		}
		code := func(body string) float64 { return do(body)["code"].(float64) }

		require.Equal(t, map[string]any{"success": true, "code": 1.0}, do(`{"command":"pop","topic":"order_close"}`))
		require.EqualValues(t, 0, code(`{"command":"add","topic":"order_close","id":"o-0","delay":3600,"body":"later"}`))
		require.EqualValues(t, 1, code(`{"command":"pop","topic":"order_close"}`), "its time has not come")
		require.EqualValues(t, 1, code(`{"command":"finish","id":"o-0"}`), "nobody has it")
		began := time.Now()
		added := do(`{"command":"add","topic":"order_close","id":"o-1","delay":1,"TTR":2,"body":"{\"shop\":7}"}`)
		require.Equal(t, map[string]any{"success": true, "id": "o-1", "code": 0.0, "job_id": added["job_id"]}, added)
		again := do(`{"command":"add","topic":"order_close","id":"o-1","delay":60,"TTR":2,"body":"x"}`)
		require.Equal(t, added, again, "it is known")
		pop := func() (job map[string]any) {
			await.That(t, func() bool {
				job = do(`{"command":"pop","topic":"order_close","wait":20}`)
				return job["code"] == 0.0
			}, "a job is popped")
			return job
		}
		job := pop()
		require.EqualValues(t, 0, job["code"])
		require.GreaterOrEqual(t, time.Since(began), time.Second)
		require.Equal(t, "o-1", job["id"])
		require.Equal(t, `{"shop":7}`, job["value"])
		require.Equal(t, added["job_id"], job["job_id"])
		require.EqualValues(t, 2, job["TTR"])
		await.That(t, func() bool { // again if this machine took longer than the TTR
			require.Equal(t, "o-1", pop()["id"], "after its TTR it is handed out again")
			return code(`{"command":"finish","id":"o-1"}`) == 0
		}, "it is finished")
		require.EqualValues(t, 1, code(`{"command":"finish","id":"o-1"}`))
		require.EqualValues(t, 1, code(`{"command":"delete","id":"o-1"}`))

		fresh := do(`{"command":"add","topic":"order_close","id":"o-1","delay":"0","body":"second"}`)
		require.NotEqual(t, added["job_id"], fresh["job_id"], "the id is free again")
		for _, id := range []string{`"o-2"`, `3`} {
			require.EqualValues(t, 0, code(`{"command":"add","topic":"order_close","id":`+id+`,"delay":0.01,"body":"b"}`))
		}
		var ids []string
		await.That(t, func() bool {
			many := do(`{"command":"pop","topic":"order_close","max":10,"wait":5}`)
			list, _ := many["jobs"].([]any)
			for _, one := range list {
				ids = append(ids, one.(map[string]any)["id"].(string))
			}
			return len(ids) == 3
		}, "all three are popped")
		slices.Sort(ids)
		require.Equal(t, []string{"3", "o-1", "o-2"}, ids)
		require.EqualValues(t, 0, code(`{"command":"delete","id":"o-2"}`), "also one that was popped")
		require.EqualValues(t, 0, code(`{"command":"finish","id":3}`))

		// A task that came by another way is popped as well, and can be finished.
		_, err := c.Tasks().Submit(t.Context(), client.Submit{BizType: "order_close", BizID: 77, Delay: time.Millisecond})
		require.NoError(t, err)
		require.EqualValues(t, 1, code(`{"command":"delete","id":77}`), "it is no job before it is popped")
		job = pop()
		require.Equal(t, "77", job["id"])
		require.EqualValues(t, 0, code(`{"command":"finish","id":77}`))

		for body, field := range map[string]string{
			`{"command":"add","topic":"nothing","id":"a"}`: "topic", `{"command":"pop","topic":"nothing"}`: "topic", `{"command":"eat","id":"a"}`: "command",
			`{"command":"finish"}`: "id", `{"command":"add","topic":"order_close","id":"a","delay":-1}`: "delay", `[]`: "body", ``: "body",
		} {
			a := do(body)
			require.EqualValues(t, 2, a["code"], body)
			require.Contains(t, a["error"], field+": ")
		}
	})
}

// A Worker acks, nacks and rejects by what its function answers.
func TestWorker(t *testing.T) {
	t.Parallel()
	cfg := pulled(fewTables(t), time.Minute)
	cfg.BizTypes[0].MaxRetries = 1
	c := run(t, cfg)
	var mu sync.Mutex
	runs := map[string][]int{}
	w := client.Worker{Client: client.New("http://" + c.Addr()), BizType: "order_close", Concurrency: 3, Logger: testLogger(t),
		Process: func(ctx context.Context, got client.LeasedTask) error {
			mu.Lock()
			runs[got.Task.Attribute] = append(runs[got.Task.Attribute], got.Attempt)
			mu.Unlock()
			switch got.Task.Attribute {
			case "gone":
				return processor.Discard(errors.New("paid"))
			case "once more":
				if got.Attempt == 1 {
					return processor.RetryAfter(time.Millisecond, errors.New("busy"))
				}
			case "broken":
				panic("no")
			case "slow":
				if <-ctx.Done(); got.Attempt == 1 {
					return ctx.Err()
				}
			}
			return nil
		}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	want := map[string]string{"well": "processed", "once more": "processed", "gone": "cancelled", "broken": "dead", "slow": "dead"}
	ids := map[string]uint64{}
	for attribute := range want {
		timeout := time.Minute
		if attribute == "slow" {
			timeout = time.Second
		}
		s, err := c.Tasks().Submit(t.Context(), client.Submit{BizType: "order_close", BizID: 1, Now: true, Attribute: attribute, Timeout: timeout})
		require.NoError(t, err)
		ids[attribute] = uint64(s.Task.JobID)
	}
	await.That(t, func() bool {
		for attribute, id := range ids {
			row, err := c.Tasks().Get(t.Context(), id)
			require.NoError(t, err)
			if row.Status != want[attribute] {
				return false
			}
		}
		return true
	}, "all tasks have ended")
	stop()
	require.NoError(t, <-ended)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []int{1, 2}, runs["once more"])
	require.Equal(t, []int{1}, runs["gone"])
	row, err := c.Tasks().Get(t.Context(), ids["broken"])
	require.NoError(t, err)
	require.Equal(t, "panic: no", row.LastError)

	w.BizType = "nobody"
	require.ErrorIs(t, w.Run(t.Context()), task.ErrNotFound)
}

// The lease of a run that takes longer than the ttr is extended, and nobody else gets the task.
func TestWorkerExtends(t *testing.T) {
	t.Parallel()
	c := run(t, pulled(fewTables(t), 10*time.Second))
	until := func(id client.ID) (end time.Time) {
		if row, err := c.Tasks().Get(t.Context(), uint64(id)); err == nil && row.Running != nil {
			end = row.Running.Until.Time()
		}
		return end
	}
	begun, extended := make(chan time.Time, 10), make(chan struct{})
	w := client.Worker{Client: client.New("http://" + c.Addr()), BizType: "order_close", Logger: testLogger(t),
		Process: func(ctx context.Context, got client.LeasedTask) error {
			begun <- got.ExpiresAt.Time()
			select {
			case <-extended:
			case <-ctx.Done():
			}
			return ctx.Err()
		}}
	s, err := c.Tasks().Submit(t.Context(), client.Submit{BizType: "order_close", BizID: 1, Now: true})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	first := await.Receive(t, begun, "it runs")
	await.That(t, func() bool { return until(s.Task.JobID).After(first) }, "its lease is extended")
	close(extended)
	await.That(t, func() bool {
		row, err := c.Tasks().Get(t.Context(), uint64(s.Task.JobID))
		return err == nil && row.Status == "processed"
	}, "the task is processed")
	require.Empty(t, begun, "it ran once")
	stop()
	require.NoError(t, <-ended)
	row, err := c.Tasks().Get(t.Context(), uint64(s.Task.JobID))
	require.NoError(t, err)
	require.Zero(t, row.Attempts)
}
