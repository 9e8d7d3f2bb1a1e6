package intake

import (
	"context"
	"time"

	"github.com/timeoutcenter/toc/store"
)

// Names of actors in the audit.
const (
	ByAPI     = "api"     // unless the context says otherwise
	ByConsole = "console" // a person, by the pages of package console
)

type actorKey struct{}

// As returns a context whose changes the audit records under the name of an actor.
func As(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

func actorOf(ctx context.Context) string {
	if actor, ok := ctx.Value(actorKey{}).(string); ok {
		return actor
	}
	return ByAPI
}

// Record writes into the audit what was done, now. What was done stands also if the audit cannot be written; then the
// log has it.
func (s *Service) Record(ctx context.Context, e store.AuditEntry) {
	e.At = s.cfg.Now()
	if err := s.cfg.Store.Record(context.WithoutCancel(ctx), e); err != nil {
		s.cfg.Logger.Error("audit not written", "actor", e.Actor, "action", e.Action, "target", e.Target, "count", e.Count, "detail", e.Detail,
			"error", err)
	}
}

// Audit narrows a look-up of the audit.
type Audit struct {
	Actor, Action string         // empty: all
	From, To      time.Time      // at or after From, and before To; zero: no bound
	After         store.AuditKey // the Next of the page before; zero: the first page
	Limit         int            // as in List
}

// AuditPage is a part of the audit.
type AuditPage struct {
	Entries []store.AuditEntry
	Next    store.AuditKey // of the next page; zero: this is the last one
}

// Audit reads what was done, the latest first.
func (s *Service) Audit(ctx context.Context, q Audit) (AuditPage, error) {
	limit, err := pageLimit(q.Limit)
	if err != nil {
		return AuditPage{}, err
	}
	list, next, err := s.cfg.Store.Audit(ctx, store.AuditFilter{
		Actor: q.Actor, Action: q.Action, From: q.From, To: q.To, After: q.After, Limit: limit,
	})
	if err != nil {
		return AuditPage{}, err
	}
	return AuditPage{Entries: list, Next: next}, nil
}
