package webhook_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/processor/webhook"
	"github.com/timeoutcenter/toc/task"
)

const receiverEnv = "TOC_TEST_RECEIVER"

// A call for which this process has no descriptor was not made: it is no attempt. Before, 140 idle connections to the API
// made tasks dead a second after they were due, unsent.
func TestWithoutDescriptorsNothingIsTried(t *testing.T) {
	if url := os.Getenv(receiverEnv); url != "" {
		withoutDescriptors(t, url)
		return
	}
	var calls int
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls++ }))
	defer receiver.Close()
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v") // a limit is the process's
	again.Env = append(os.Environ(), receiverEnv+"="+receiver.URL)
	said, err := again.CombinedOutput()
	require.NoError(t, err, string(said))
	require.Equal(t, 1, calls)
}

func withoutDescriptors(t *testing.T, url string) {
	w, err := webhook.New(task.BizType{Name: "a", Workers: 1, Timeout: 5 * time.Second}, webhook.Config{URL: url})
	require.NoError(t, err)
	defer func() { require.NoError(t, w.Close()) }()
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 50, Max: 50}))
	var taken []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			require.ErrorIs(t, err, syscall.EMFILE)
			break
		}
		taken = append(taken, f)
	}
	err = w.Process(t.Context(), task.Task{JobID: 1})
	pause, untried := processor.IsNoAttempt(err)
	require.True(t, untried, err)
	require.Equal(t, time.Second, pause)
	require.ErrorContains(t, err, "too many open files")
	for _, f := range taken {
		require.NoError(t, f.Close())
	}
	require.NoError(t, w.Process(t.Context(), task.Task{JobID: 1}))
}
