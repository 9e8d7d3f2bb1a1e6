package peerproof_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	toc "github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/cluster/peerproof"
	"github.com/timeoutcenter/toc/task"
)

// The largest question between nodes and the largest answer go through, and more is refused by its name. (At 799f0ec answers were
// cut at 1 MiB, and the tasks in them were leased by nobody, until they were dead.)
func TestTheLargestGoThrough(t *testing.T) {
	text := func(n int) string { return strings.Repeat("\x01", n) } // six bytes each in JSON
	var question struct {
		Settle []toc.Settlement `json:"settle"`
	}
	var answer toc.LeaseAnswer
	for range 256 {
		id := toc.ID(1<<63 - 1)
		question.Settle = append(question.Settle, toc.Settlement{Lease: toc.Lease{JobID: id, Number: 1<<63 - 1}.String(), Do: "nack", Error: text(task.MaxLastError),
			RetryAfter: new(toc.Duration(time.Hour)), TTR: toc.Duration(time.Hour)})
		answer.Tasks = append(answer.Tasks, toc.LeasedTask{Lease: toc.Lease{JobID: id, Number: 1<<63 - 1}, ExpiresAt: toc.Time(time.Now()), Attempt: 255,
			Traceparent: text(55), Task: toc.From(task.Task{JobID: 1<<63 - 1, BizID: 1<<64 - 1, BizKey: text(task.MaxBizKey), BizType: 1, Attribute: text(task.MaxAttribute),
				LastError: text(task.MaxLastError), DedupKey: text(task.MaxDedupKey), Trace: text(55), ActionTime: time.Now(), DueTime: time.Now()}, text(64))})
	}
	said, err := json.Marshal(question)
	require.NoError(t, err)
	given, err := json.Marshal(answer)
	require.NoError(t, err)

	ask := func(question, answer []byte) (string, error) {
		owner := peerproof.New("n2", keys("one")).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got, err := io.ReadAll(r.Body)
			if err != nil || string(got) != string(question) {
				w.WriteHeader(http.StatusTeapot)
			}
			_, _ = w.Write(answer)
		}), func(w http.ResponseWriter, err error) { http.Error(w, err.Error(), http.StatusUnauthorized) })
		r := httptest.NewRequest("POST", "/v1/leases/settle", strings.NewReader(string(question)))
		a, err := peerproof.New("n1", keys("one")).Transport("n2", wire{handler: owner}).RoundTrip(r)
		if err != nil {
			return "", err
		}
		require.Equal(t, http.StatusOK, a.StatusCode)
		body, err := io.ReadAll(a.Body)
		return string(body), err
	}
	body, err := ask(said, given)
	require.NoError(t, err)
	require.Equal(t, string(given), body)
	_, err = ask(said, make([]byte, 8<<20+1))
	require.EqualError(t, err, "its answer is larger than 8 MiB")
}
