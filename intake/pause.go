package intake

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Decisions puts what operators decide about business types in force, on all nodes; see pause.Control.
type Decisions interface {
	Set(ctx context.Context, decision store.Control) error
}

const maxReason = 255 // characters

// Pause keeps the tasks of a business type from starting, on all nodes within two seconds, over restarts, until Resume or p.Until. Runs
// under way end. A second Pause replaces the first. It returns task.UnknownTypeError, a task.FieldError (reason, until), or
// task.ErrUnavailable if no database took it.
func (s *pauses) Pause(ctx context.Context, bizType string, p api.AskPause) (api.BizType, error) {
	b, err := s.Types().Find(bizType)
	if err != nil {
		return api.BizType{}, err
	}
	if n := utf8.RuneCountInString(p.Reason); n > maxReason || !utf8.ValidString(p.Reason) {
		return api.BizType{}, task.Wrong("reason", "has %d characters; give at most %d, of valid UTF-8", n, maxReason)
	}
	row := store.Control{BizType: b.ID, Paused: true, Reason: p.Reason}
	detail := p.Reason
	if !p.Until.IsZero() {
		now := s.cfg.Now()
		if row.Until = task.CeilMilli(p.Until.UTC()); !row.Until.After(now) || row.Until.After(now.Add(MaxAhead)) {
			return api.BizType{}, task.Wrong("until", "%s is not in the future, or more than 10 years ahead; it is %s now",
				p.Until.UTC().Format(time.RFC3339Nano), now.UTC().Format(time.RFC3339))
		}
		detail = strings.TrimSpace("until " + api.Time(row.Until).String() + " " + p.Reason)
	}
	return s.decide(ctx, "pause", b, row, detail)
}

// Resume ends the pause of a business type: what has become due meanwhile starts at once. Its errors are those of Pause.
func (s *pauses) Resume(ctx context.Context, bizType string) (api.BizType, error) {
	b, err := s.Types().Find(bizType)
	if err != nil {
		return api.BizType{}, err
	}
	return s.decide(ctx, "resume", b, store.Control{BizType: b.ID}, "")
}

func (s *pauses) decide(ctx context.Context, action string, b task.BizType, row store.Control, detail string) (api.BizType, error) {
	row.Actor = actorOf(ctx)
	if err := s.cfg.Decisions.Set(ctx, row); err != nil {
		return api.BizType{}, err
	}
	s.Record(ctx, store.AuditEntry{Actor: row.Actor, Action: action, Target: b.Name, Detail: detail})
	return s.cfg.Status.LoadOf(ctx, b), nil
}
