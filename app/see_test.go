package app_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/wire"
)

// What was submitted just now is in the forecast and in the list of all tasks, in process and over HTTP.
func TestWhatIsToCome(t *testing.T) {
	onSQLite(t, func(t *testing.T, cfg configs.Config) {
		c := run(t, cfg, app.WithProcessor("ledger", newLedger()))
		at := time.Now().Add(20 * time.Minute).Truncate(time.Second).UTC()
		var ids []string
		for i := range uint64(12) {
			got, err := c.Tasks().Submit(t.Context(), client.Submit{BizType: "order_close", BizID: i, ActionTime: at.Add(time.Duration(i/11) * time.Hour)})
			require.NoError(t, err)
			ids = append(ids, got.Task.JobID.String())
		}
		for _, ask := range []tasks{c.Tasks(), askHTTP(c)} {
			f, err := ask.Forecast(t.Context(), client.AskForecast{BizType: "order_close", Step: time.Minute, Span: time.Hour})
			require.NoError(t, err)
			require.False(t, f.Estimated)
			require.Equal(t, 60, f.StepSeconds)
			require.Len(t, f.Buckets, 1)
			require.Equal(t, at.Truncate(time.Minute), f.Buckets[0].At.Time())
			require.Equal(t, 11, f.Buckets[0].Due)
			require.Equal(t, []wire.DueSecond{{Second: wire.Time(at), BizType: "order_close", Due: 11}}, f.Crowded)
			f, err = ask.Forecast(t.Context(), client.AskForecast{})
			require.NoError(t, err)
			require.Len(t, f.Buckets, 2)

			var listed []string
			for q := (client.ListAll{From: at, To: at.Add(2 * time.Hour), Limit: 5}); ; {
				p, err := ask.ListAll(t.Context(), q)
				require.NoError(t, err)
				for _, one := range p.Tasks {
					listed = append(listed, one.JobID.String())
				}
				if q.Cursor = p.NextCursor; q.Cursor == "" {
					break
				}
			}
			require.ElementsMatch(t, ids, listed)
		}
		await.That(t, func() bool {
			text := scrape(t, c)
			return strings.Contains(text, `toc_due{biz_type="order_close",within="1h"} 11`) && strings.Contains(text, `toc_due{biz_type="order_close",within="1d"} 12`) &&
				strings.Contains(text, `toc_due{biz_type="order_close",within="1m"} 0`)
		}, "toc_due counts the tasks")
	})
}
