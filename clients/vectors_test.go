package clients

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/processor/webhook"
	"github.com/timeoutcenter/toc/task"
)

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
