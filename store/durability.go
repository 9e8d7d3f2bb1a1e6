package store

import (
	"context"
	"fmt"

	"github.com/timeoutcenter/toc/internal/mysqlsession"
)

// Durability returns the settings of a database by which an answered write may be lost in a crash, one line each, with
// the value to set. It is empty if the database is durable.
func (s *databases) Durability(ctx context.Context, database int) (faults []string, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	faults, err = s.backend.durability(ctx, database)
	return faults, s.wrap(database, "read its durability", err)
}

// Server returns the first database of the server that a database is on: its settings are those of all of them.
func (s *databases) Server(database int) int { return s.backend.server(database) }

func (b *mysqlBackend) durability(ctx context.Context, database int) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout) // others need the few connections that ping
	defer cancel()
	report, err := mysqlsession.Read(ctx, b.pings[database], limits(b.timeout))
	return report.NotDurable, err
}

// durability: FULL (2) forces each commit of a write-ahead log to disk; see sqliteDSN.
func (b *sqliteBackend) durability(ctx context.Context, database int) ([]string, error) {
	const full = 2
	var synchronous int
	err := b.writers[database].QueryRowContext(ctx, "PRAGMA synchronous").Scan(&synchronous)
	if err != nil || synchronous >= full {
		return nil, err
	}
	return []string{fmt.Sprintf("synchronous is %d: an answered write may not be on disk; set synchronous=FULL", synchronous)}, nil
}
