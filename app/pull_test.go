package app_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/task"
)

// pulled makes the business type of a configuration one whose tasks are leased for so long.
func pulled(cfg configs.Config, ttr time.Duration) configs.Config {
	b := &cfg.BizTypes[0]
	b.Processor = configs.ProcessorPull
	b.Pull = configs.Pull{TTR: ttr, MaxInFlight: 1000}
	b.Backoff.Min, b.Backoff.Max = 100*time.Millisecond, 200*time.Millisecond
	return cfg
}

// A stream sends tasks as they fall due, as many as it has credit for.
func TestPullStream(t *testing.T) {
	t.Parallel()
	cfg := pulled(fewTables(t), time.Minute)
	c := run(t, cfg)
	url := "http://" + c.Addr() + "/v1/biz-types/order_close/stream"
	for query, status := range map[string]int{"?credit=0": 422, "?credit=x": 422, "?ttr=1ms": 422, "?max=1": 422} {
		r, err := http.Get(url + query)
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		require.Equal(t, status, r.StatusCode, query)
	}
	for header, status := range map[[2]string]int{{"Sec-Fetch-Site", "cross-site"}: 403, {"User-Agent", "Mozilla/5.0 (a picture of another page)"}: 406} {
		foreign, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		require.NoError(t, err)
		foreign.Header.Set(header[0], header[1])
		r, err := http.DefaultClient.Do(foreign)
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		require.Equal(t, status, r.StatusCode, header[0])
	}

	r, err := http.Get(url + "?credit=3&ttr=30s")
	require.NoError(t, err)
	defer r.Body.Close()
	require.Equal(t, 200, r.StatusCode)
	require.Equal(t, "text/event-stream", r.Header.Get("Content-Type"))
	start := time.Now().Add(time.Second)
	var list []client.Submit
	for i := range 5 {
		list = append(list, client.Submit{BizType: "order_close", BizID: uint64(i), ActionTime: start.Add(time.Duration(i) * 500 * time.Millisecond)})
	}
	_, err = c.Tasks().SubmitBatch(t.Context(), list)
	require.NoError(t, err)
	var seen []string
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		data, is := strings.CutPrefix(lines.Text(), "data: {\"lease\"")
		if !is {
			continue
		}
		var one client.LeasedTask
		require.NoError(t, json.Unmarshal([]byte(`{"lease"`+data), &one))
		require.WithinRange(t, one.ExpiresAt.Time(), start.Add(30*time.Second), time.Now().Add(30*time.Second+time.Millisecond), "rounded up to a millisecond")
		results, err := client.New("http://"+c.Addr()).Settle(t.Context(), client.Settlement{Lease: one.Lease.String(), Do: client.Ack})
		require.NoError(t, err)
		require.Equal(t, client.SettledOK, results[0].Result)
		seen = append(seen, one.Task.BizID.String())
	}
	require.NoError(t, lines.Err())
	require.Len(t, seen, 3, "and then the stream ends")
	require.Subset(t, []string{"0", "1", "2", "3", "4"}, seen)
	require.Equal(t, 3, countStatus(t, cfg, task.Processed))
}
