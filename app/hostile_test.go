package app_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// Loads that cost their senders little are sent, one kind after the other, to a center in a process of its own. It fires
// what is due meanwhile, each task once and no attempt lost, says that it lives, and stays small. How soon it says so is only logged: the
// senders have the same cores. Sizes are those of a program without the race detector.
func TestHostileLoads(t *testing.T) {
	testrig.OnlyInAll(t, "package rest bounds each kind: TestLargeBodiesTakeTurns, TestBodyThatDoesNotArrive, TestConnectionsAreBounded")
	sink := newWebhookSink(t)
	cfg := fewTables(t)
	cfg.BizTypes[0].Processor, cfg.BizTypes[0].MaxRetries, cfg.BizTypes[0].Timeout = configs.ProcessorWebhook, 1, await.Patience
	cfg.BizTypes[0].Webhook.URL = sink.URL
	types := 1000
	if isRace() {
		types = 100
	}
	for i := range types { // an answer that named them all would be large
		b := configs.DefaultBizType()
		b.ID, b.Name, b.Processor = uint64(1000+i), fmt.Sprintf("a_business_type_with_a_long_name_number_%d", i), configs.ProcessorLog
		b.Workers = 1
		cfg.BizTypes = append(cfg.BizTypes, b)
	}
	file := filepath.Join(t.TempDir(), "toc.yaml")
	require.NoError(t, os.WriteFile(file, []byte(cfg.String()), 0o600))
	cmd, addr := startChildAt(t, file)
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()

	api, ids := client.New("http://"+addr), []uint64{}
	defer api.CloseIdleConnections()
	late := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: await.Patience}
	for _, load := range []struct {
		name    string
		senders int
		send    func(context.Context, http.RoundTripper)
	}{
		{"nothing", 0, nil},
		{"batches of a type that is not configured", 6, post(addr, "/v1/tasks/batch", manyTasks("nope"))},
		{"batches of keys that nobody knows", 6, post(addr, "/v1/tasks/batch", manyKeys(8<<20-100))},
		{"batches of tasks to store", 6, post(addr, "/v1/tasks/batch", manyTasks("a_business_type_with_a_long_name_number_7"))},
		{"tasks that are too large", 6, post(addr, "/v1/tasks", manyKeys(8<<20-100))},
		{"tasks of keys that nobody knows", 6, post(addr, "/v1/tasks", manyKeys(32<<10-10))},
		{"probes with a long query", 6, post(addr, "/readyz?"+strings.Repeat("a&b&c&", 4000), nil)},
		{"probes", 150, post(addr, "/readyz", nil)},
		{"halves of requests", 1000, func(ctx context.Context, _ http.RoundTripper) { idle(ctx, addr) }},
		{"noise", 6, func(ctx context.Context, _ http.RoundTripper) { babble(ctx, addr) }},
	} {
		ctx, stop := context.WithTimeout(t.Context(), 500*time.Millisecond)
		var senders sync.WaitGroup
		pool := &http.Transport{MaxIdleConnsPerHost: 200}
		for range load.senders {
			senders.Go(func() {
				for ctx.Err() == nil {
					load.send(ctx, pool)
				}
			})
		}
		var latency []time.Duration
		before := len(ids)
		for ctx.Err() == nil {
			began := time.Now()
			if answer, err := late.Get("http://" + addr + "/healthz"); err == nil {
				_ = answer.Body.Close()
				latency = append(latency, time.Since(began))
			}
			s, err := api.Submit(await.Context(t), client.Submit{BizType: "order_close", BizID: rand.Uint64(), Now: true})
			if err == nil {
				ids = append(ids, uint64(s.Task.JobID))
			}
			for ctx.Err() == nil && sink.called() < len(ids) { // the next one when this one has run
				select {
				case <-sink.arrived:
				case <-ctx.Done():
				}
			}
		}
		senders.Wait()
		stop()
		pool.CloseIdleConnections()
		require.NotEmpty(t, latency, load.name)
		slices.Sort(latency)
		t.Logf("%-42s %3d tasks; /healthz p50 %s, max %s; at most %d MB so far", load.name, len(ids)-before,
			latency[len(latency)/2].Round(time.Millisecond), latency[len(latency)-1].Round(time.Millisecond), peakMemory(t, cmd.Process.Pid)>>20)
	}
	size := peakMemory(t, cmd.Process.Pid)
	require.GreaterOrEqual(t, len(ids), 5)
	for _, id := range ids {
		await.That(t, func() bool {
			got, err := api.Get(t.Context(), id)
			return err == nil && got.Status == "processed" && got.Attempts == 0
		}, "task %d is processed by its first run", id)
	}
	sink.mu.Lock()
	defer sink.mu.Unlock()
	for _, id := range ids {
		require.Equal(t, 1, sink.calls[strconv.FormatUint(id, 10)])
	}
	if !isRace() {
		require.Less(t, size, 256<<20)
	}
}

// manyTasks is a batch of 10,000 tasks of a type, as large as a batch may be.
func manyTasks(bizType string) []byte {
	task := fmt.Sprintf(`{"biz_type":%q,"biz_id":"7","delay":"24h","attribute":%q}`, bizType, strings.Repeat("x", 720))
	return []byte(`{"tasks":[` + task + strings.Repeat(","+task, 9_999) + `]}`)
}

// manyKeys is an object of keys that nobody knows.
func manyKeys(size int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"a":0`)
	for i := 0; b.Len() < size-20; i++ {
		fmt.Fprintf(&b, `,"%d":0`, i)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// post sends a body again and again; nil is a GET.
func post(addr, path string, body []byte) func(context.Context, http.RoundTripper) {
	method := http.MethodPost
	if body == nil {
		method = http.MethodGet
	}
	return func(ctx context.Context, pool http.RoundTripper) {
		r, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, bytes.NewReader(body))
		if err != nil {
			panic(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if answer, err := pool.RoundTrip(r); err == nil {
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
		}
	}
}

// idle holds a connection on which half a request came.
func idle(ctx context.Context, addr string) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		<-ctx.Done() // it gives up
		return
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET /v1/tasks/1 HTTP/1.1\r\nHost: "+addr+"\r\nX-")
	_, _ = io.Copy(io.Discard, conn)
}

// babble says what is no HTTP.
func babble(ctx context.Context, addr string) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close()
	noise := make([]byte, 2000)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	_, _ = conn.Write(append([]byte("POST / HTTP/1.1\r\n"), noise...))
	_, _ = io.Copy(io.Discard, conn)
}

// peakMemory is the most that a process has had in memory, in bytes (Linux).
func peakMemory(t *testing.T, pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	var kB int
	_, err = fmt.Sscan(rest, &kB)
	require.NoError(t, err)
	return kB << 10
}

// isRace tells whether this program has the race detector, which multiplies what it needs.
func isRace() bool {
	info, _ := debug.ReadBuildInfo()
	return slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-race" && s.Value == "true" })
}
