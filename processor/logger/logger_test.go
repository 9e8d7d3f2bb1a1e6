package logger_test

import (
	"bytes"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/processor/logger"
	"github.com/timeoutcenter/toc/task"
)

var orderClose = task.BizType{ID: 7, Name: "order_close"}

// logTo writes lines without their time.
func logTo(level slog.Level) (*slog.Logger, *bytes.Buffer) {
	var out bytes.Buffer
	return slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})), &out
}

func TestLogTellsOfATask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock stands at 2000-01-01
		now := time.Now()
		lines, out := logTo(slog.LevelInfo)
		l := logger.New(orderClose, lines)
		require.NoError(t, l.Process(t.Context(), task.Task{JobID: 5, BizID: 42, Attempts: 2, ActionTime: now.Add(-1500 * time.Microsecond)}))
		require.NoError(t, l.Process(t.Context(), task.Task{JobID: 6, BizID: 43, ActionTime: now.Add(time.Second)}))
		require.Equal(t, `level=INFO msg="task fired" biz_type=order_close job_id=5 biz_id=42 action_time=1999-12-31T23:59:59.998Z lateness_ms=1 attempt=3
level=INFO msg="task fired" biz_type=order_close job_id=6 biz_id=43 action_time=2000-01-01T00:00:01.000Z lateness_ms=0 attempt=1
`, out.String())
		require.NoError(t, l.Process(t.Context(), task.Task{JobID: 7, BizID: 44, BizKey: "6f1c-9a53", ActionTime: now}))
		require.Contains(t, out.String(), "job_id=7 biz_id=6f1c-9a53 ")
	})
}

func TestLogTellsOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		due := time.Now()
		tasks := []task.Task{{JobID: 5, BizID: 42, ActionTime: due}, {JobID: 6, BizID: 43, ActionTime: due}, {JobID: 9, BizID: 44, ActionTime: due}}
		const batch = "level=INFO msg=\"tasks fired\" biz_type=order_close count=3 first_job_id=5 last_job_id=9\n"
		const each = `level=DEBUG msg="task fired" biz_type=order_close job_id=5 biz_id=42 action_time=2000-01-01T00:00:00.000Z lateness_ms=0 attempt=1
level=DEBUG msg="task fired" biz_type=order_close job_id=6 biz_id=43 action_time=2000-01-01T00:00:00.000Z lateness_ms=0 attempt=1
level=DEBUG msg="task fired" biz_type=order_close job_id=9 biz_id=44 action_time=2000-01-01T00:00:00.000Z lateness_ms=0 attempt=1
`
		for level, want := range map[slog.Level]string{slog.LevelWarn: "", slog.LevelInfo: batch, slog.LevelDebug: batch + each} {
			lines, out := logTo(level)
			require.Nil(t, logger.New(orderClose, lines).ProcessBatch(t.Context(), tasks))
			require.Equal(t, want, out.String())
		}

		lines, out := logTo(slog.LevelInfo)
		l := logger.New(orderClose, lines)
		require.Nil(t, l.ProcessBatch(t.Context(), nil))
		require.Empty(t, out.String())
		require.Nil(t, l.ProcessBatch(t.Context(), tasks[:1]))
		require.Contains(t, out.String(), `level=INFO msg="task fired" biz_type=order_close job_id=5`)
	})
}

func TestLogThatIsNotWrittenCostsNothing(t *testing.T) {
	lines, _ := logTo(slog.LevelWarn)
	l := logger.New(orderClose, lines)
	tasks := make([]task.Task, 256)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_ = l.Process(t.Context(), tasks[0])
		_ = l.ProcessBatch(t.Context(), tasks)
	}))
}
