package logqueue

import (
	"context"
	"log/slog"
	"sync"
)

// Mutex is a mutex whose holder can log: the lines are written after the unlock, by the goroutine that unlocks. A log handler
// that blocks thus keeps nobody from the mutex.
type Mutex struct {
	mu    sync.Mutex
	lines []func()
}

// Lock locks the mutex.
func (m *Mutex) Lock() { m.mu.Lock() }

// Unlock unlocks the mutex and writes what was logged under it.
func (m *Mutex) Unlock() {
	lines := m.lines
	m.lines = nil
	m.mu.Unlock()
	for _, write := range lines {
		write()
	}
}

// Log logs after the unlock. The mutex is locked.
func (m *Mutex) Log(logger *slog.Logger, level slog.Level, message string, args ...any) {
	m.lines = append(m.lines, func() { logger.Log(context.Background(), level, message, args...) })
}
