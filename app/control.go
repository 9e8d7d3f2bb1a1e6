package app

import (
	"context"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/intake/bulk"
	"github.com/timeoutcenter/toc/intake/pause"
)

func (a *App) newControl() *pause.Control {
	return pause.New(pause.Config{
		Store: a.store, Databases: a.layout.Databases, Gate: gate{a}, Now: a.clock.Now, Logger: a.component("control"),
	})
}

// gate puts pauses in force: the queue takes no tasks of a paused business type, and both engines ask the queue.
type gate struct{ *App }

// SetPaused implements pause.Gate.
func (g gate) SetPaused(bizTypes []uint64) {
	g.queue.SetPaused(bizTypes)
	g.scanner.Tick() // for what is not paused any more
	g.timer.Reread()
}

// byEmbedder is who decides by Pause and Resume, as toc_control names them.
const byEmbedder = "embedder"

// Pause keeps the tasks of a business type from starting, on all nodes within two seconds, over restarts, until
// Resume or p.Until. Runs under way end. A second Pause replaces the first. It returns task.ErrNotFound for an
// unknown business type, a *task.FieldError (reason, until), or task.ErrUnavailable if no database took it.
func (a *App) Pause(ctx context.Context, bizType string, p client.Pause) (client.BizType, error) {
	return a.service.Pause(intake.WithActor(ctx, byEmbedder), bizType, p)
}

// Resume ends the pause of a business type: what has become due meanwhile starts at once. Its errors are those of
// Pause.
func (a *App) Resume(ctx context.Context, bizType string) (client.BizType, error) {
	return a.service.Resume(intake.WithActor(ctx, byEmbedder), bizType)
}

// paused is the pause of a business type as the API shows it; nil: it is not paused.
func (s status) paused(bizType uint64) *api.Pause {
	row, ok := s.control.Paused(bizType)
	if !ok {
		return nil
	}
	return &api.Pause{By: row.Actor, Since: api.Time(row.Changed), Until: api.Time(row.Until), Reason: row.Reason}
}

func (a *App) newOperations(owned owners) *bulk.Runner {
	return bulk.New(bulk.Config{
		Store: a.store, Databases: a.layout.Databases, Control: a.control, Ownership: owned,
		Undoer: a.service, Dispatch: a.dispatcher, Now: a.clock.Now, Logger: a.component("operations"),
	})
}
