package logger_test

import (
	"io"
	"log/slog"
	"testing"

	"github.com/timeoutcenter/toc/processor/logger"
	"github.com/timeoutcenter/toc/task"
)

func BenchmarkLogger(b *testing.B) {
	tasks := make([]task.Task, 256)
	for name, level := range map[string]slog.Level{"silent": slog.LevelWarn, "info": slog.LevelInfo} {
		l := logger.New(orderClose, slog.New(slog.NewJSONHandler(io.Discard, &slog.HandlerOptions{Level: level})))
		b.Run(name+"/one", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = l.Process(b.Context(), tasks[0])
			}
		})
		b.Run(name+"/batch256", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = l.ProcessBatch(b.Context(), tasks)
			}
		})
	}
}
