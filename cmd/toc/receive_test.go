package main

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/processor/webhook"
	"github.com/timeoutcenter/toc/task"
)

const theSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// callOnce makes one real call, signed if there is a secret.
func callOnce(t *testing.T, url, secret, attribute string) error {
	t.Helper()
	hook, err := webhook.New(task.BizType{Name: "order_close", Timeout: time.Minute}, webhook.Config{URL: url, Secret: secret})
	require.NoError(t, err)
	defer func() { require.NoError(t, hook.Close()) }()
	return hook.Process(t.Context(), task.Task{JobID: 413351953711104, BizID: 42, Attempts: 2, ActionTime: morning.Add(-7 * time.Millisecond), Attribute: attribute})
}

// newReceiver serves a receiver in this process.
func newReceiver(t *testing.T, r *receiver) (url string, out, complaints *bytes.Buffer) {
	out, complaints = &bytes.Buffer{}, &bytes.Buffer{}
	r.out, r.complaints, r.now = out, complaints, func() time.Time { return morning }
	if r.status == 0 {
		r.status = http.StatusOK
	}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	return server.URL, out, complaints
}

func TestReceiverPrintsWhatComes(t *testing.T) {
	url, out, _ := newReceiver(t, &receiver{})
	require.NoError(t, callOnce(t, url, "", ""))
	require.NoError(t, callOnce(t, url+"/fire", theSecret, "two\nlines"))
	require.NoError(t, callOnce(t, url, "", strings.Repeat("é", 4096/2)))
	const line = "413351953711104  order_close 42  attempt 3  7 ms late  signature "
	require.Equal(t, line+"none\n"+line+"not checked  \"two\\nlines\"\n"+line+"none  "+strings.Repeat("é", shownAttribute)+"…\n", out.String())
}

func TestReceiverPrintsJSON(t *testing.T) {
	url, out, _ := newReceiver(t, &receiver{asJSON: true})
	long := strings.Repeat("x", 4096)
	require.NoError(t, callOnce(t, url, "", long))
	require.Equal(t, `{"job_id":"413351953711104","biz_type":"order_close","biz_id":"42","attempt":3,"lateness_ms":7,`+
		`"signature":"none","attribute":"`+long+"\"}\n", out.String())
}

func TestReceiverVerifies(t *testing.T) {
	for _, secret := range []string{theSecret, "a plain phrase"} {
		verifier, err := readSecret("", file(t, "secret", secret+"\n"))
		require.NoError(t, err)
		url, out, _ := newReceiver(t, &receiver{verifier: verifier})
		require.NoError(t, callOnce(t, url, secret, ""))
		require.ErrorContains(t, callOnce(t, url, "another phrase", ""), "401")
		require.ErrorContains(t, callOnce(t, url, "", ""), "401")
		require.Equal(t, []string{"ok", "wrong", "none"}, regexp.MustCompile(`ok|wrong|none`).FindAllString(out.String(), -1))
	}
}

func TestReceiverAnswersAsItIsTold(t *testing.T) {
	for _, status := range []int{204, 410, 503} {
		url, _, _ := newReceiver(t, &receiver{status: status, delay: 20 * time.Millisecond})
		start := time.Now()
		answer, err := http.Post(url, "application/json", strings.NewReader(pendingTask))
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, status, answer.StatusCode)
		require.GreaterOrEqual(t, time.Since(start), 20*time.Millisecond)
	}
}

func TestReceiverRefusesWhatIsNoWebhook(t *testing.T) {
	url, out, complaints := newReceiver(t, &receiver{})
	for body, want := range map[string]string{
		"hello":                         "invalid character",
		"{}":                            "it has no job_id or no action_time",
		strings.Repeat(" ", maxCall+1):  "request body too large",
		`{"job_id":"1","biz_type":"x"}`: "it has no job_id or no action_time",
	} {
		complaints.Reset()
		answer, err := http.Post(url, "application/json", strings.NewReader(body))
		require.NoError(t, err)
		said, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusBadRequest, answer.StatusCode)
		require.Contains(t, string(said), want)
		require.Equal(t, string(said), complaints.String())
	}
	answer, err := http.Get(url)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusMethodNotAllowed, answer.StatusCode)
	require.Empty(t, out.String())
}

// The program says where it listens and what to write into the configuration, and Ctrl-C ends it while a call waits.
func TestReceiveEndsByCtrlC(t *testing.T) {
	path := program(t)
	cmd := exec.CommandContext(await.Context(t), path, "receive", "--listen", "127.0.0.1:0", "--secret-file", file(t, "secret", theSecret), "--delay", "1h")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())

	complaints := bufio.NewReader(stderr)
	var url string
	for url == "" {
		said, err := complaints.ReadString('\n')
		require.NoError(t, err)
		if found := regexp.MustCompile(`webhook: \{url: (http://127\.0\.0\.1:\d+/)\}`).FindStringSubmatch(said); found != nil {
			url = found[1]
		}
	}
	cut := make(chan error, 1)
	go func() { cut <- callOnce(t, url, theSecret, "") }()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "signature ok")
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Error(t, <-cut)
	require.NoError(t, cmd.Wait(), "exit code 0")
}
