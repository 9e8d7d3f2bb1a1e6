package intake

import (
	"context"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/store"
)

// Names of actors in the audit.
const (
	ByAPI     = "api"     // unless the context says otherwise
	ByConsole = "console" // a person, by the pages of package console
)

type actorKey struct{}

// WithActor returns a context whose changes the audit records under the name of an actor.
func WithActor(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

func actorOf(ctx context.Context) string {
	if actor, ok := ctx.Value(actorKey{}).(string); ok {
		return actor
	}
	return ByAPI
}

// Audit reads who did what, the latest first.
func (s *lookups) Audit(ctx context.Context, q api.Audit) (p api.AuditPage, err error) {
	limit, c, err := pageOf(q.Limit, api.CursorAudit, q.Cursor)
	if err != nil {
		return p, err
	}
	f := store.AuditFilter{Actor: q.Actor, Action: q.Action, From: q.From, To: q.To, Limit: limit,
		After: store.AuditKey{At: c.At, Database: c.Part, ID: c.ID}}
	list, next, err := s.cfg.Store.Audit(ctx, f)
	if err != nil {
		return p, err
	}
	c.At, c.Part, c.ID = next.At, next.Database, next.ID
	p = api.AuditPage{Entries: make([]api.AuditEntry, len(list)), NextCursor: c.Next(c.ID != 0)}
	for i, e := range list {
		p.Entries[i] = api.AuditEntry{At: api.Time(e.At), Actor: e.Actor, Action: e.Action, Target: e.Target, Count: e.Count, Detail: e.Detail}
	}
	return p, nil
}
