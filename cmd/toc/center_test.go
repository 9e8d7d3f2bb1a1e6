package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

// startCenter runs a center in this process whose business type coupon fails at
// once and for good; it makes it the server of all command lines of the test.
func startCenter(t *testing.T) {
	cfg, err := configs.Load(small(t, "biz_types: [{id: 1, name: order_close}, {id: 2, name: coupon, processor: broken, max_retries: 0}]"), nil)
	require.NoError(t, err)
	cfg.HTTP.Tokens = []string{"secret-0123456789"}
	cfg.Node.Name = "n1"
	ready := make(chan string, 1)
	center, err := app.New(cfg, app.WithLogger(slog.New(slog.DiscardHandler)), app.WithReady(func(addr string) { ready <- addr }),
		app.WithProcessor("broken", processor.Func(func(context.Context, task.Task) error { return errors.New("no such coupon") })))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- center.Run(ctx) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-ended) })
	select {
	case addr := <-ready:
		t.Setenv("TOC_SERVER", addr)
		t.Setenv("TOC_TOKEN", "secret-0123456789")
	case err := <-ended:
		ended <- err
		require.NoError(t, err, "the center did not start")
	}
}

// answer runs a command line with --json and reads its output.
func answer[T any](t *testing.T, args ...string) (v T) {
	t.Helper()
	out := ok(t, append(args, "--json")...)
	require.NoError(t, json.Unmarshal([]byte(out), &v), out)
	return v
}

func TestLifeOfATask(t *testing.T) {
	startCenter(t)
	due := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	submit := []string{"submit", "--biz-type", "order_close", "--biz-id", "42", "--at", due.Format(time.RFC3339), "--attribute", "x", "--dedup-key", "k"}
	made := answer[client.Task](t, submit...)
	id := made.JobID.String()
	require.Equal(t, due, made.ActionTime.Time())
	require.Equal(t, made, answer[client.Task](t, "get", id))
	require.Equal(t, made, answer[client.Task](t, submit...), "the same dedup_key")

	moved := answer[client.Task](t, "reschedule", id, "--in", "2h", "--attribute", "y")
	require.WithinRange(t, moved.ActionTime.Time(), time.Now().Add(time.Hour+59*time.Minute), time.Now().Add(2*time.Hour+time.Second))
	require.Equal(t, "y", moved.Attribute)
	require.Equal(t, []client.Task{moved}, answer[client.Page](t, "list", "--biz-id", "42", "--status", "pending").Tasks)

	require.Equal(t, "cancelled "+id+"\n", ok(t, "cancel", id))
	for _, again := range [][]string{{"cancel", id}, {"reschedule", id, "--in", "1h"}, {"redrive", id}} {
		r := toc(again...)
		require.Equal(t, 1, r.code, again)
		require.Contains(t, r.err, "already_cancelled", again)
	}
	require.Empty(t, answer[client.Page](t, "list", "--biz-id", "42", "--status", "pending").Tasks)
	require.Equal(t, "cancelled", answer[client.Task](t, "get", id).Status)

	r := toc("get", "1")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "404 Not Found")
	r = toc("submit", "--biz-type", "order_close", "--biz-id", "42", "--at", "2020-01-01T00:00:00Z")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "action_time")
}

func TestDeadTasks(t *testing.T) {
	startCenter(t)
	const n = 3
	var ids []string
	for _, bizID := range []string{"7", "8", "18446744073709551615"} {
		ids = append(ids, answer[client.Task](t, "submit", "--biz-type", "coupon", "--biz-id", bizID, "--in", "0s").JobID.String())
	}
	dead := func(flags ...string) []client.Task {
		return answer[client.Page](t, append([]string{"dead", "list"}, flags...)...).Tasks
	}
	allDead := func() bool { return len(dead()) == n }
	await.That(t, allDead, "all are dead")
	require.Equal(t, "no such coupon", dead()[0].LastError)
	require.Len(t, dead("--limit", "2"), 2)
	require.Empty(t, dead("--biz-type", "order_close"))

	require.Equal(t, client.Redriven{Matched: n}, answer[client.Redriven](t, "dead", "redrive", "--dry-run"))
	require.Equal(t, client.Redriven{}, answer[client.Redriven](t, "dead", "redrive", "--biz-type", "order_close"))
	require.Len(t, dead(), n, "still")
	require.Equal(t, client.Redriven{Matched: n, Redriven: 1}, answer[client.Redriven](t, "dead", "redrive", "--biz-type", "coupon", "--limit", "1"))
	await.That(t, allDead, "it has died once more")

	require.Contains(t, ok(t, "redrive", ids[0]), "pending")
	await.That(t, allDead, "all are dead")
	require.Equal(t, "matched 3, redriven 3\n", ok(t, "dead", "redrive"))
}

func TestCluster(t *testing.T) {
	startCenter(t)
	c := answer[client.Cluster](t, "cluster")
	require.Equal(t, "n1", c.Node)
	require.Len(t, c.Nodes, 1)
	require.Equal(t, []int{0, 1, 2, 3}, c.Nodes[0].Partitions)
	require.Contains(t, ok(t, "cluster"), "* n1")

	t.Setenv("TOC_TOKEN", "wrong")
	r := toc("cluster")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "set TOC_TOKEN")
}
