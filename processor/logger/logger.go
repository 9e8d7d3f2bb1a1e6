// Package logger is the processor that writes a line to the log for each task.
package logger

import (
	"context"
	"log/slog"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// Processor writes a line for each task that fires. It never fails. It is what a
// business type starts with, and what benchmarks drain into: a level that the
// logger does not write costs nothing.
type Processor struct{ logger *slog.Logger }

// New makes the log processor of a business type.
func New(b task.BizType, logger *slog.Logger) *Processor {
	return &Processor{logger: logger.With(slog.String("biz_type", b.Name))}
}

// Process logs the task at info.
func (l *Processor) Process(ctx context.Context, t task.Task) error {
	l.fired(ctx, slog.LevelInfo, t)
	return nil
}

// ProcessBatch logs one line for the batch at info and one for each task at
// debug. A batch of one is logged like a task alone, so that a quiet center
// logs every task at info.
func (l *Processor) ProcessBatch(ctx context.Context, tasks []task.Task) []error {
	switch len(tasks) {
	case 0:
		return nil
	case 1:
		l.fired(ctx, slog.LevelInfo, tasks[0])
		return nil
	}
	if l.logger.Enabled(ctx, slog.LevelInfo) {
		l.logger.LogAttrs(ctx, slog.LevelInfo, "tasks fired",
			slog.Int("count", len(tasks)),
			slog.Uint64("first_job_id", tasks[0].JobID),
			slog.Uint64("last_job_id", tasks[len(tasks)-1].JobID))
	}
	if l.logger.Enabled(ctx, slog.LevelDebug) {
		for _, t := range tasks {
			l.fired(ctx, slog.LevelDebug, t)
		}
	}
	return nil
}

func (l *Processor) fired(ctx context.Context, level slog.Level, t task.Task) {
	if !l.logger.Enabled(ctx, level) {
		return
	}
	l.logger.LogAttrs(ctx, level, "task fired",
		slog.Uint64("job_id", t.JobID),
		slog.Any("biz_id", t.GivenBizID()),
		slog.Time("action_time", t.ActionTime.UTC()),
		slog.Int64("lateness_ms", max(0, time.Since(t.ActionTime)).Milliseconds()),
		slog.Int("attempt", t.Attempts+1))
}
