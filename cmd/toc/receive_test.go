package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReceiverRefusesWhatIsNoWebhook(t *testing.T) {
	var out, complaints bytes.Buffer
	server := httptest.NewServer(&receiver{status: http.StatusOK, now: time.Now, out: &out, complaints: &complaints})
	defer server.Close()
	for body, want := range map[string]string{
		"hello":                         "invalid character",
		"{}":                            "it has no job_id or no action_time",
		strings.Repeat(" ", maxCall+1):  "request body too large",
		`{"job_id":"1","biz_type":"x"}`: "it has no job_id or no action_time",
	} {
		complaints.Reset()
		answer, err := http.Post(server.URL, "application/json", strings.NewReader(body))
		require.NoError(t, err)
		said, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusBadRequest, answer.StatusCode)
		require.Contains(t, string(said), want)
		require.Equal(t, string(said), complaints.String())
	}
	answer, err := http.Get(server.URL)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusMethodNotAllowed, answer.StatusCode)
	require.Empty(t, out.String())
}
