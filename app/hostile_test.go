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
	"sync/atomic"
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

// Loads that once took a gigabyte, each on a center in a process of its own: it stays small and says that it lives. Each load ends by what
// was answered, not by the clock. The race detector multiplies what a process needs, but not its heap.
func TestHostileLoadsStaySmall(t *testing.T) {
	testrig.OnlyInAll(t, "each kind is bounded: TestWhoIsRefusedLosesTheConnection and TestYouzanFindsAJobAmongManyTasks of package rest, TestReadsOfAllTablesTakeTurns of package intake")
	const token = "0123456789abcdef0123456789abcdef"
	for name, load := range map[string]func(t *testing.T, cfg configs.Config, addr string){
		"64 KB of headers and no token on all connections": func(t *testing.T, cfg configs.Config, addr string) {
			var head strings.Builder
			fmt.Fprintf(&head, "POST /v1/tasks HTTP/1.1\r\nHost: %s\r\nContent-Length: 200000\r\n", addr)
			for i := range 9759 {
				fmt.Fprintf(&head, "%05d:\r\n", i)
			}
			head.WriteString("\r\n")
			var ends sync.WaitGroup
			conns := make([]net.Conn, cfg.HTTP.MaxConnections)
			for i := range conns {
				conn, err := net.Dial("tcp", addr)
				require.NoError(t, err)
				defer conn.Close()
				conns[i] = conn
			}
			for _, conn := range conns {
				ends.Go(func() {
					_, _ = io.WriteString(conn, head.String())
					_, _ = io.Copy(io.Discard, conn) // the body does not come: the center ends it
				})
			}
			ended := make(chan struct{})
			go func() { ends.Wait(); close(ended) }()
			await.Receive(t, ended, "the center ends each connection")
		},
		"ten at once finish a job behind 21,600 tasks": func(t *testing.T, _ configs.Config, addr string) {
			for k := range 18 {
				submitMany(t, addr, 1200, func(i int) string {
					return fmt.Sprintf(`{"biz_type":"pulled","biz_id":"7","delay":"48h","attribute":%q,"dedup_key":"youzan%d-%d"}`, strings.Repeat("x", 4000), k, i)
				})
			}
			atOnce(10, func() {
				status, answer := send(t, http.MethodPost, addr, "/youzan", `{"command":"finish","id":"7"}`)
				if status != http.StatusOK || !strings.Contains(answer, "there is no such job") { // nobody has leased one
					t.Errorf("%d: %s", status, answer)
				}
			})
		},
		"sixteen read the groups of 20,000 dead tasks": func(t *testing.T, cfg configs.Config, addr string) {
			for k := range 20 {
				submitMany(t, addr, 1000, func(i int) string {
					return fmt.Sprintf(`{"biz_type":"order_close","biz_id":"%d","delay":"48h"}`, k*1000+i)
				})
			}
			eachTable(t, cfg, func(db querier, table string) {
				_, err := db.ExecContext(t.Context(), "UPDATE "+table+" SET status=4,last_error=char(97+biz_id%7)||' fails'")
				require.NoError(t, err)
			})
			var read atomic.Int64
			atOnce(16, func() {
				for range 8 {
					status, answer := send(t, http.MethodGet, addr, "/v1/dead/groups", "")
					switch {
					case status == http.StatusOK && strings.Contains(answer, `"count":2858`): // the largest of seven groups
						read.Add(1)
					case status != http.StatusServiceUnavailable: // not its turn
						t.Errorf("%d: %s", status, answer)
					}
				}
			})
			require.Positive(t, read.Load())
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := embedded(t)
			cfg.Store.Databases, cfg.Store.TablesPerDatabase = 8, 32
			cfg.HTTP.MaxConnections = 400
			cfg.BizTypes[0].Processor = configs.ProcessorLog
			pulled := configs.DefaultBizType()
			pulled.ID, pulled.Name, pulled.Processor = 2, "pulled", configs.ProcessorPull
			cfg.BizTypes = append(cfg.BizTypes, pulled)
			text := cfg.String() // hides tokens
			if strings.Contains(name, "token") {
				text = strings.Replace(text, "tokens: []", "tokens: ["+token+"]", 1)
				require.Contains(t, text, token)
			}
			file := filepath.Join(t.TempDir(), "toc.yaml")
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			cmd, addr := startChildAt(t, file)
			defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()

			late := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: await.Patience}
			var lives atomic.Int64
			stop := await.Throughout(func() {
				if answer, err := late.Get("http://" + addr + "/healthz"); err == nil && answer.Body.Close() == nil && answer.StatusCode == http.StatusOK {
					lives.Add(1)
				}
			})
			load(t, cfg, addr)
			before := lives.Load()
			await.That(t, func() bool { return lives.Load() > before }, "/healthz answers")
			stop()
			size, heap := peakMemory(t, cmd.Process.Pid), peakHeap(t, addr, token)
			t.Logf("%d answers of /healthz; at most %d MB, %d MB of it heap", lives.Load(), size>>20, heap>>20)
			require.Less(t, heap, 256<<20)
			if !isRace() {
				require.Less(t, size, 256<<20)
			}
		})
	}
}

// submitMany submits a batch of tasks.
func submitMany(t *testing.T, addr string, n int, task func(i int) string) {
	t.Helper()
	list := make([]string, n)
	for i := range list {
		list[i] = task(i)
	}
	status, answer := send(t, http.MethodPost, addr, "/v1/tasks/batch", `{"tasks":[`+strings.Join(list, ",")+`]}`)
	require.Equal(t, http.StatusOK, status, answer[:min(len(answer), 200)])
}

// atOnce calls f so many times at once.
func atOnce(n int, f func()) {
	var all sync.WaitGroup
	for range n {
		all.Go(f)
	}
	all.Wait()
}

// send sends one request, and reports what cannot be answered. Any goroutine may call it.
func send(t *testing.T, method, addr, path, body string) (status int, answer string) {
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, strings.NewReader(body))
	if err == nil {
		r.Header.Set("Content-Type", "application/json")
		var a *http.Response
		if a, err = http.DefaultClient.Do(r); err == nil {
			defer a.Body.Close()
			var read []byte
			read, err = io.ReadAll(a.Body)
			status, answer = a.StatusCode, string(read)
		}
	}
	if err != nil {
		t.Error(err)
	}
	return status, answer
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

// peakHeap is the most that the heap of a center has had from the system, in bytes: the runtime gives no address back.
func peakHeap(t *testing.T, addr, token string) int {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/metrics", nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(text), "\ngo_memstats_heap_sys_bytes ")
	var size float64
	_, err = fmt.Sscan(rest, &size)
	require.NoError(t, err)
	return int(size)
}

// isRace tells whether this program has the race detector, which multiplies what it needs.
func isRace() bool {
	info, _ := debug.ReadBuildInfo()
	return slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-race" && s.Value == "true" })
}
