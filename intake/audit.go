package intake

import (
	"context"
	"fmt"
	"time"

	"github.com/timeoutcenter/toc/store"
)

// actor is who acts through a Service.
const actor = "api"

// record writes what was done into the audit, even if the caller has left.
func (s *Service) record(ctx context.Context, action, target string, count int, detail string) error {
	err := s.cfg.Store.Record(context.WithoutCancel(ctx), store.AuditEntry{
		At: s.cfg.Now(), Actor: actor, Action: action, Target: target, Count: count, Detail: detail,
	})
	if err != nil {
		return fmt.Errorf("done, but the audit does not say so: %w", err)
	}
	return nil
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
	list, last, err := s.cfg.Store.Audit(ctx, store.AuditFilter{
		Actor: q.Actor, Action: q.Action, From: q.From, To: q.To, After: q.After, Limit: limit,
	})
	if err != nil {
		return AuditPage{}, err
	}
	p := AuditPage{Entries: list}
	if len(list) == limit { // the next page may be empty
		p.Next = last
	}
	return p, nil
}
