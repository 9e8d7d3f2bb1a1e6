// Package clients tests the clients in other languages against a real center, and the vectors that all clients share.
package clients

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/processor/webhook"
	"github.com/timeoutcenter/toc/task"
)

const token = "0123456789abcdef"

// start starts an embedded center, and returns its URL.
func start(t *testing.T) string {
	cfg := configs.Default()
	cfg.HTTP.Listen, cfg.HTTP.Tokens = "127.0.0.1:0", []string{token}
	cfg.Store.SQLite.Dir = t.TempDir()
	cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = 4, 0
	b := configs.DefaultBizType()
	b.ID, b.Name, b.Processor = 1, "order_close", configs.ProcessorLog
	other := b
	other.ID, other.Name = 2, "demo"
	pulled := b
	pulled.ID, pulled.Name, pulled.Processor, pulled.MaxRetries = 3, "pulled", configs.ProcessorPull, 1
	cfg.BizTypes = []configs.BizType{b, other, pulled}
	ready := make(chan string, 1)
	a, err := app.New(cfg, app.WithLogger(slog.New(slog.DiscardHandler)), app.WithReady(func(addr string) { ready <- addr }))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	select {
	case addr := <-ready:
		return "http://" + addr
	case err := <-ended:
		ended <- nil
		require.NoError(t, err)
		return ""
	}
}

func TestPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not here")
	}
	cmd := exec.CommandContext(t.Context(), python, "-W", "error", "-m", "unittest", "-v")
	cmd.Dir = "python"
	cmd.Env = append(os.Environ(), "TOC_SERVER="+start(t), "TOC_TOKEN="+token, "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
}

// The vectors are what the Go code does.
func TestVectors(t *testing.T) {
	text, err := os.ReadFile("testdata/vectors.json")
	require.NoError(t, err)
	var vectors struct {
		Signatures []struct {
			Name, Secret, ID, Timestamp, Body, Signature string
			Valid                                        bool
		}
		Refusals []struct {
			Status     int
			RetryAfter string `json:"retry_after"`
			Body       json.RawMessage
			Kind, Text string
		}
	}
	require.NoError(t, json.Unmarshal(text, &vectors))
	for _, v := range vectors.Signatures {
		verifier, err := webhook.NewSigner(v.Secret)
		require.NoError(t, err)
		err = verifier.VerifyIgnoringTimestamp([]byte(v.Body), http.Header{
			"Webhook-Id": {v.ID}, "Webhook-Timestamp": {v.Timestamp}, "Webhook-Signature": {v.Signature},
		})
		require.Equal(t, v.Valid, err == nil, v.Name)
	}
	var conflict *task.ConflictError
	var changed *task.ChangedError
	var field *task.FieldError
	is := map[string]func(error) bool{
		"not found":   func(err error) bool { return errors.Is(err, task.ErrNotFound) },
		"conflict":    func(err error) bool { return errors.As(err, &conflict) },
		"changed":     func(err error) bool { return errors.As(err, &changed) },
		"invalid":     func(err error) bool { return errors.As(err, &field) },
		"unavailable": func(err error) bool { return errors.Is(err, task.ErrUnavailable) },
	}
	for _, v := range vectors.Refusals {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.Header().Set("Retry-After", v.RetryAfter)
			w.WriteHeader(v.Status)
			_, _ = w.Write(v.Body)
		}))
		_, err := client.New(s.URL).Get(t.Context(), 1)
		s.Close()
		require.EqualError(t, err, v.Text)
		for kind, holds := range is {
			require.Equal(t, kind == v.Kind, holds(err), "%d %s", v.Status, kind)
		}
	}
}
