package app

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/intake/pause"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
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

// Pause keeps the tasks of a business type from starting, on all nodes within two seconds, over restarts, until
// Resume or p.Until. Runs under way end. A second Pause replaces the first. It returns task.ErrNotFound for an
// unknown business type, a *task.FieldError (reason, until), or task.ErrUnavailable if no database took it.
func (a *App) Pause(ctx context.Context, bizType string, p client.Pause) (client.BizType, error) {
	return a.decide(ctx, bizType, byEmbedder, p.Request())
}

// Resume ends the pause of a business type: what has become due meanwhile starts at once. Its errors are those of
// Pause.
func (a *App) Resume(ctx context.Context, bizType string) (client.BizType, error) {
	return a.resume(ctx, bizType, byEmbedder)
}

// Who decides, as toc_control names them.
const (
	byAPI      = intake.ByAPI
	byEmbedder = "embedder"
)

// operator changes business types for the HTTP API.
type operator struct{ *App }

// Pause implements rest.Operator.
func (o operator) Pause(ctx context.Context, bizType string, p api.PauseRequest) (api.BizType, error) {
	return o.decide(ctx, bizType, byAPI, p)
}

// Resume implements rest.Operator.
func (o operator) Resume(ctx context.Context, bizType string) (api.BizType, error) {
	return o.resume(ctx, bizType, byAPI)
}

const maxReason = 255 // characters

func (a *App) decide(ctx context.Context, bizType, by string, p api.PauseRequest) (api.BizType, error) {
	b, err := a.catalog.Load().Find(bizType)
	if err != nil {
		return api.BizType{}, err
	}
	if n := utf8.RuneCountInString(p.Reason); n > maxReason || !utf8.ValidString(p.Reason) {
		return api.BizType{}, &task.FieldError{Field: "reason",
			Message: fmt.Sprintf("has %d characters; give at most %d, of valid UTF-8", n, maxReason)}
	}
	row := store.Control{BizType: b.ID, Paused: true, Reason: p.Reason, Actor: by}
	if p.Until != nil {
		now := a.clock.Now()
		if row.Until = task.CeilMilli(p.Until.UTC()); !row.Until.After(now) || row.Until.After(now.Add(intake.MaxAhead)) {
			return api.BizType{}, &task.FieldError{Field: "until",
				Message: fmt.Sprintf("%s is not in the future, or more than 10 years ahead; it is %s now",
					p.Until.UTC().Format(time.RFC3339Nano), now.UTC().Format(time.RFC3339))}
		}
	}
	if err := a.control.Set(ctx, row); err != nil {
		return api.BizType{}, err
	}
	detail := p.Reason
	if !row.Until.IsZero() {
		detail = strings.TrimSpace("until " + api.Time(row.Until).String() + " " + p.Reason)
	}
	a.service.Record(ctx, store.AuditEntry{Actor: by, Action: "pause", Target: b.Name, Detail: detail})
	return a.bizTypeOfAll(ctx, b), nil
}

func (a *App) resume(ctx context.Context, bizType, by string) (api.BizType, error) {
	b, err := a.catalog.Load().Find(bizType)
	if err != nil {
		return api.BizType{}, err
	}
	if err := a.control.Set(ctx, store.Control{BizType: b.ID, Actor: by}); err != nil {
		return api.BizType{}, err
	}
	a.service.Record(ctx, store.AuditEntry{Actor: by, Action: "resume", Target: b.Name})
	return a.bizTypeOfAll(ctx, b), nil
}

// paused is the pause of a business type as the API shows it; nil: it is not paused.
func (a *App) paused(bizType uint64) *api.Pause {
	row, ok := a.control.Paused(bizType)
	if !ok {
		return nil
	}
	return &api.Pause{By: row.Actor, Since: api.Time(row.Changed), Until: api.Time(row.Until), Reason: row.Reason}
}
