package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// child is `toc serve` in a process of its own.
type child struct {
	*exec.Cmd
	url   string
	ended chan error
}

// serve starts the built program and waits until it listens.
func serve(t *testing.T, config string) *child {
	t.Helper()
	c := &child{Cmd: exec.Command("toc", "serve", "--config", config, "--log-format", "json"), ended: make(chan error, 1)}
	stderr, err := c.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())

	listening := make(chan string, 1)
	go func() { // ends with the process
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			var line struct{ Msg, Addr string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "listening" {
				listening <- line.Addr
			}
			fmt.Fprintln(t.Output(), lines.Text())
		}
		c.ended <- c.Wait()
	}()
	t.Cleanup(func() {
		_ = c.Process.Kill() // if it has not ended
		<-c.ended
	})
	select {
	case addr := <-listening:
		c.url = "http://" + addr
	case err := <-c.ended:
		c.ended <- err
		require.Failf(t, "toc serve ended", "%v", err)
	case <-time.After(await.Patience):
		require.Fail(t, "toc serve does not listen")
	}
	return c
}

// end waits for the end of the process and gives its exit code.
func (c *child) end(t *testing.T) int {
	t.Helper()
	c.ended <- await.Receive(t, c.ended, "toc serve ends")
	return c.ProcessState.ExitCode()
}

// slowShop is a webhook that tells when it is called and answers when told.
type slowShop struct {
	*httptest.Server
	calls  atomic.Int64
	called chan struct{}
	answer chan struct{}
}

func newSlowShop(t *testing.T) *slowShop {
	s := &slowShop{called: make(chan struct{}, 100), answer: make(chan struct{})}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.calls.Add(1)
		s.called <- struct{}{}
		select {
		case <-s.answer:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *slowShop) config(t *testing.T) string {
	return small(t, fmt.Sprintf("biz_types: [{id: 1, name: order_close, webhook: {url: %q}}]", s.URL))
}

func TestSIGTERMDrains(t *testing.T) {
	shop := newSlowShop(t)
	config := shop.config(t)
	center := serve(t, config)
	for id := range 5 {
		ok(t, "submit", "--server", center.url, "--biz-type", "order_close", "--biz-id", fmt.Sprint(id), "--in", "0s")
	}
	ok(t, "submit", "--server", center.url, "--biz-type", "order_close", "--biz-id", "99", "--in", "1h")
	for range 5 {
		await.Receive(t, shop.called, "the tasks fire")
	}

	require.NoError(t, center.Process.Signal(syscall.SIGTERM))
	await.That(t, func() bool { // it knows; its runs are waited for
		answer, err := http.Get(center.url + "/readyz")
		if err != nil {
			return true // the door is closed
		}
		defer answer.Body.Close()
		return answer.StatusCode == http.StatusServiceUnavailable
	}, "it is not ready")
	require.Empty(t, center.ended)
	close(shop.answer)
	require.Zero(t, center.end(t))

	require.EqualValues(t, 5, shop.calls.Load(), "nothing ran twice")
	require.Equal(t, "status,n\n0,1\n2,5\n", ok(t, "sql", "--csv", "--config", config,
		"SELECT status, COUNT(*) AS n FROM timeout_task GROUP BY status ORDER BY status"))
}

// Before, the Redis inside the process listened on a port of its own, where ten bytes from any local user ended the center.
func TestTheEmbeddedRedisListensNowhere(t *testing.T) {
	center := serve(t, small(t, "biz_types: [{id: 1, name: demo_log, mode: redis, processor: log}]"))
	ok(t, "submit", "--server", center.url, "--biz-type", "demo_log", "--biz-id", "7", "--in", "0s")
	await.That(t, func() bool {
		return strings.Contains(ok(t, "list", "--server", center.url, "--biz-id", "7"), "processed")
	}, "the task is processed")

	require.Equal(t, []string{center.url}, listeners(t, center.Process.Pid))
}

// listeners lists where a process takes TCP connections, as Linux tells it in /proc.
func listeners(t *testing.T, pid int) (urls []string) {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d/", pid)
	open, err := filepath.Glob(proc + "fd/*")
	require.NoError(t, err)
	sockets := make(map[string]bool)
	for _, path := range open {
		target, _ := os.Readlink(path) // one may be closed by now
		sockets[target] = true
	}
	for _, table := range []string{"net/tcp", "net/tcp6"} {
		text, err := os.ReadFile(proc + table)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			const listen = "0A" // TCP_LISTEN
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != listen || !sockets["socket:["+f[9]+"]"] {
				continue
			}
			_, hex, _ := strings.Cut(f[1], ":")
			port, err := strconv.ParseUint(hex, 16, 16)
			require.NoError(t, err)
			urls = append(urls, fmt.Sprintf("http://127.0.0.1:%d", port))
		}
	}
	return urls
}
