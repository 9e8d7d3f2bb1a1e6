package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/processor/webhook"
	"github.com/timeoutcenter/toc/task"
)

func orders(n int) []task.Task {
	list := make([]task.Task, n)
	for i := range list {
		list[i] = order()
		list[i].JobID += uint64(i)
	}
	return list
}

// A batch is one signed call with an array of the tasks, each as it is in a call of its own.
func TestBatchIsOneCall(t *testing.T) {
	const secret = "a secret of some length"
	verifier, err := webhook.NewSigner(secret)
	require.NoError(t, err)
	var ids []string
	var got []json.RawMessage
	r := serve(t, func(_ http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		require.NoError(t, verifier.Verify(body, req.Header))
		require.NoError(t, json.Unmarshal(body, &got))
		require.Empty(t, req.Header.Values("toc-attempt"))
		ids = append(ids, req.Header.Get("webhook-id"))
	})
	w := open(t, webhook.Config{URL: r.URL, Secret: secret, Batch: 50})
	require.Equal(t, 50, limitOf(w))
	list := orders(50)
	require.Equal(t, make([]error, 50), w.ProcessBatch(t.Context(), list))
	for i := range list {
		require.JSONEq(t, string(api.From(list[i], "order_close").AppendJSON(nil)), string(got[i]))
	}
	require.NoError(t, w.Process(t.Context(), list[0]), "alone")
	require.Len(t, got, 1)
	require.Len(t, ids, 2)
	require.NotEqual(t, ids[0], ids[1], "it is another message")
}

// Each task has the result that the answer gives it, whatever becomes of the others.
func TestResultsOfABatch(t *testing.T) {
	first := order().JobID
	for name, row := range map[string]struct {
		status int
		answer string
		want   [3]string // processed, failed, discarded, or the pause
		says   string    // the last of them
	}{
		"nothing said":       {200, "", [3]string{"processed", "processed", "processed"}, ""},
		"words":              {202, "thanks", [3]string{"processed", "processed", "processed"}, ""},
		"JSON of its own":    {200, `{"ok":true}`, [3]string{"processed", "processed", "processed"}, ""},
		"one status for all": {500, `{"results":[]}`, [3]string{"failed", "failed", "failed"}, "500 Internal Server Error"},
		"all are gone":       {410, "", [3]string{"discarded", "discarded", "discarded"}, "410 Gone"},
		"one of each": {200, `{"results":[{"job_id":"%[2]d","status":410},{"job_id":"%[1]d","status":204},{"job_id":"%[3]d","status":404,"error":"no such\norder"}]}`,
			[3]string{"processed", "discarded", "failed"}, "404 Not Found: no such order"},
		"numbers as ids": {200, `{"results":[{"job_id":%[1]d,"status":200},{"job_id":%[2]d,"status":200},{"job_id":%[3]d,"status":302}]}`,
			[3]string{"processed", "processed", "failed"}, "302 Found"},
		"pauses": {207, `{"results":[{"job_id":"%[1]d","status":503,"retry_after":7},{"job_id":"%[2]d","status":429,"retry_after":"1m30s"},{"job_id":"%[3]d","status":503,"retry_after":1e9}]}`,
			[3]string{"7s", "1m30s", "10m0s"}, "503 Service Unavailable"},
		"one is forgotten": {200, `{"results":[{"job_id":"%[1]d","status":200},{"job_id":"1","status":200},{"job_id":"%[3]d"}]}`,
			[3]string{"processed", "failed", "failed"}, "POST"},
		"none is named":   {200, `{"results":[]}`, [3]string{"failed", "failed", "failed"}, "has no result for this task"},
		"it breaks off":   {200, `{"results":[{"job_id":"%[1]d","status":200},`, [3]string{"processed", "failed", "failed"}, "cannot be read"},
		"a wrong pause":   {200, `{"results":[{"job_id":"%[1]d","status":503,"retry_after":"soon"},{"job_id":"%[2]d","status":200},{"job_id":"%[3]d","status":200}]}`, [3]string{"failed", "processed", "processed"}, ""},
		"a pause of none": {200, `{"results":[{"job_id":"%[1]d","status":503,"retry_after":null},{"job_id":"%[2]d","status":429,"retry_after":-5},{"job_id":"%[3]d","status":500,"retry_after":5}]}`, [3]string{"failed", "failed", "failed"}, "500"},
	} {
		t.Run(name, func(t *testing.T) {
			r := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(row.status)
				answer := row.answer
				if strings.Contains(answer, "%[") {
					answer = fmt.Sprintf(answer, first, first+1, first+2)
					answer, _, _ = strings.Cut(answer, "%!(EXTRA")
				}
				_, _ = io.WriteString(w, answer)
			})
			verdicts := open(t, webhook.Config{URL: r.URL, Batch: 3}).ProcessBatch(t.Context(), orders(3))
			require.Len(t, verdicts, 3)
			var got [3]string
			for i, err := range verdicts {
				pause, later := processor.RetryPause(err)
				switch {
				case err == nil:
					got[i] = "processed"
				case processor.IsDiscard(err):
					got[i] = "discarded"
				case later:
					got[i] = pause.String()
				default:
					got[i] = "failed"
				}
			}
			require.Equal(t, row.want, got)
			if row.says != "" {
				require.ErrorContains(t, verdicts[2], row.says)
			}
		})
	}
}

// An answer that says that tasks have failed is not a yes because its form is wrong, and each result that can be read counts. At
// 799f0ec all tasks were processed, or of a long answer none.
func TestAnswersOfAWrongForm(t *testing.T) {
	first := order().JobID
	results := func(format string) string {
		var parts []string
		for i := range uint64(3) {
			parts = append(parts, fmt.Sprintf(format, first+i))
		}
		return strings.Join(parts, ",")
	}
	no := results(`{"job_id":"%d","status":503,"error":"closed"}`)
	for name, row := range map[string]struct {
		contentType, answer string
		says                [3]string // of each task's error; empty: processed
	}{
		"a byte order mark":        {"", "\xef\xbb\xbf" + `{"results":[` + no + `]}`, [3]string{"closed", "closed", "closed"}},
		"a mark and spaces":        {"", "\xef\xbb\xbf \r\n" + `{"results":[` + no + `]}`, [3]string{"closed", "closed", "closed"}},
		"a bare array":             {"", `[` + no + `]`, [3]string{"an array", "an array", "an array"}},
		"results is an object":     {"", `{"results":{"503":1}}`, [3]string{"no array", "no array", "no array"}},
		"no JSON, as JSON":         {"application/problem+json; charset=utf-8", "\xff\xfe{\x00", [3]string{"cannot be read", "cannot be read", "cannot be read"}},
		"a word, as JSON":          {"application/json", `"ok"`, [3]string{}},
		"nothing, as JSON":         {"application/json", "", [3]string{}},
		"only a mark":              {"text/plain", "\xef\xbb\xbf", [3]string{}},
		"results are null":         {"application/json", `{"results":null,"ok":true}`, [3]string{"no result", "no result", "no result"}},
		"something before results": {"", `{"ok":{"results":[]},"results":[` + no + `],"n":1}`, [3]string{"closed", "closed", "closed"}},
		"longer than is read": {"", `{"results":[` + results(`{"job_id":"%d","status":200,"more":"`+strings.Repeat("x", 30<<10)+`"}`) + `]}`,
			[3]string{"", "", "longer than 67 KiB"}},
		"the second is wrong": {"", fmt.Sprintf(`{"results":[{"job_id":"%d","status":200},{"job_id":{}},{"job_id":"%d","status":200}]}`, first, first+2),
			[3]string{"", "cannot be read", "cannot be read"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if row.contentType != "" {
					w.Header().Set("Content-Type", row.contentType)
				}
				_, _ = io.WriteString(w, row.answer)
			})
			for i, err := range open(t, webhook.Config{URL: r.URL, Batch: 3}).ProcessBatch(t.Context(), orders(3)) {
				if row.says[i] == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, row.says[i])
				}
			}
		})
	}
}

// Nobody answers: all have failed.
func TestBatchWithoutAnAnswer(t *testing.T) {
	r := serve(t, func(http.ResponseWriter, *http.Request) {})
	r.Close()
	w := open(t, webhook.Config{URL: r.URL, Batch: 3})
	for _, err := range w.ProcessBatch(t.Context(), orders(3)) {
		require.ErrorContains(t, err, "connection refused")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	for _, err := range w.ProcessBatch(ctx, orders(2)) {
		require.ErrorContains(t, err, "no answer within")
	}
}

func TestWithoutBatchEachTaskIsACallOfItsOwn(t *testing.T) {
	require.Equal(t, 1, limitOf(open(t, webhook.Config{URL: "http://127.0.0.1:1"})))
}

func limitOf(w *webhook.Processor) int {
	tasks, _ := w.Limits()
	return tasks
}
