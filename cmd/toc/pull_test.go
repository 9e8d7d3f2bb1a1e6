package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// The shell of --exec is rarely all that runs: at the end of the lease what it has started ends, too, and no pipe that it holds is
// waited for.
func TestPullKillsWhatACommandHasStarted(t *testing.T) {
	out, in, err := os.Pipe()
	require.NoError(t, err)
	defer out.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		defer in.Close()
		ended <- runCommand(ctx, "sh -c 'echo started; exec sleep 100'; true", client.LeasedTask{}, in, io.Discard)
	}()
	require.NoError(t, out.SetReadDeadline(time.Now().Add(await.Patience)))
	lines := bufio.NewReader(out)
	started, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "started\n", started)
	cancel()
	_, err = lines.ReadByte()
	require.ErrorIs(t, err, io.EOF, "nobody has its output open")
	require.ErrorContains(t, <-ended, "signal: killed")
}

// A command that ends well is acked, though it leaves something in the background that has its output.
func TestPullLeavesTheBackgroundAlone(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the output of what a command leaves behind is waited for a second")
	}
	lives := file(t, "lives", "")
	command := fmt.Sprintf("while [ -e %s ]; do sleep 0.02; done &", lives)
	require.NoError(t, runCommand(t.Context(), command, client.LeasedTask{}, io.Discard, io.Discard))
}

// Ctrl-C goes to all processes of the terminal's foreground group.
func TestPullWaitsForItsCommandsAfterCtrlC(t *testing.T) {
	runs := file(t, "runs", "")
	var leases atomic.Int64
	settled, asks, hungUp := make(chan string, 10), make(chan struct{}, 10), make(chan struct{}, 10)
	center := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/settle"):
			var asked struct{ Settle []client.Settlement }
			_ = json.Unmarshal(body, &asked)
			for _, s := range asked.Settle {
				settled <- fmt.Sprint(s.Lease, " ", s.Do)
			}
			fmt.Fprint(w, `{"results":[{"lease":"1-1","result":"ok"}]}`)
		case leases.Add(1) == 1:
			fmt.Fprintf(w, `{"tasks":[{"lease":"1-1","attempt":1,"expires_at":%q,"task":{"job_id":"1","biz_id":"1"}}]}`,
				time.Now().Add(10*time.Minute).UTC().Format(time.RFC3339))
		default:
			asks <- struct{}{}
			<-r.Context().Done()
			hungUp <- struct{}{}
		}
	}))
	defer center.Close()
	pull := exec.Command("toc", "pull", "--server", center.URL, "--biz-type", "a",
		"--exec", fmt.Sprintf("echo started; while [ -e %s ]; do sleep 0.02; done; echo done", runs))
	pull.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pull.Stderr = t.Output()
	out, err := pull.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, pull.Start())
	stuck := time.AfterFunc(await.Patience, func() { _ = pull.Process.Kill() })
	defer stuck.Stop()
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "started\n", line)

	await.Receive(t, asks, "it asks for more tasks")
	require.NoError(t, syscall.Kill(-pull.Process.Pid, syscall.SIGINT))
	await.Receive(t, hungUp, "it asks no more")
	require.NoError(t, os.Remove(runs))
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	require.NoError(t, pull.Wait())
	require.Equal(t, "done\n", string(rest))
	require.Equal(t, "1-1 ack", <-settled)
}
