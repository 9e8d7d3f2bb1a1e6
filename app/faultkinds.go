package app

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/api"
	intakekafka "github.com/timeoutcenter/toc/server/kafka"
	"github.com/timeoutcenter/toc/worker"
)

// faultKinds lists all kinds of faults, in the order in which /readyz shows them.
func (a *App) faultKinds() []*fault {
	return []*fault{
		{code: "draining", title: "the node is stopping", after: "at once", stops: true,
			find: one(func(s *state) string { return textIf(a.draining.Load(), "draining: this node is about to stop") })},
		{code: "configuration", title: "the configuration file is refused", after: "1 s",
			begins: "configuration refused; the old one stays in force",
			find: one(func(*state) string {
				why, _ := a.refused.Load().(string)
				return textIf(why != "", "the configuration file is refused; the one before stays in force: %s", why)
			})},
		{code: "tls", title: "certificates were replaced by files that cannot be used", after: "the next connection, or `/readyz`",
			begins: "certificates cannot be re-read; the old ones stay in force",
			find: one(func(*state) string {
				err := a.tls.check()
				return textIf(err != nil, "certificates cannot be used, those read before stay in force: %v", err)
			})},
		{code: "consul", title: "Consul is down or cut off, or the agent has lost its servers", after: "2 s",
			metric: "toc_consul_up", begins: "lost consul", ends: "consul is back",
			find: one(func(s *state) string { return s.lost })},
		{code: "waiting", title: "the start waits for databases or Consul: [Start](#start)", after: "at once", stops: true,
			begins: "waiting to start", find: (*state).starting},
		{code: "no_partitions",
			title: "partitions are held by a node that does not answer, or are nobody's; this node owns none because of that",
			after: "2 s, on a node with a share 10 s; nobody's: 3 ttl and 5 s", metric: "toc_partitions_owned",
			find: func(s *state) []trouble {
				held := each(s.unworked, func(u api.Unworked) string { return fmt.Sprintf("%d partitions: %s", len(u.Partitions), u.Reason) })
				return append(held, one((*state).ownsNone)(s)...)
			}},
		{code: "redis", title: "Redis is down, or hangs", after: "5 s (`redis.outage_after`)",
			metric: "toc_redis_up", begins: "Redis is out of reach", ends: "Redis is back",
			find: one(func(s *state) string { return s.redis() })},
		{code: "redis_evicts", title: "Redis may evict: its `maxmemory-policy` is not `noeviction`", after: "5 s",
			begins: "Redis may evict slots", ends: "Redis does not evict slots any more",
			find: one(func(*state) string {
				policy, _ := a.timer.Memory()
				return textIf(policy != "", "redis may evict slots: its maxmemory-policy is %s, not noeviction", policy)
			})},
		{code: "redis_full", title: "Redis is full", after: "5 s", begins: "Redis is full", ends: "Redis has room again",
			find: one(func(*state) string {
				_, used := a.timer.Memory()
				return textIf(used != "", "redis is full: it uses %s", used)
			})},
		{code: "clock", title: "this machine's clock is wrong by a second", after: "1 s", begins: "this machine's clock is … ahead",
			find: one(func(*state) string { return a.clock.Degraded() })},
		{code: "clock_skew", title: "this machine's clock differs from another one by more than `clock.max_skew`", after: "5 s",
			metric: "toc_clock_skew_seconds",
			find:   one(func(s *state) string { return describeSkews(s.skews, a.cfg.Clock.MaxSkew) })},
		a.noDescriptors(),
		{code: "kafka", title: "no broker of an intake's Kafka cluster answers: its records wait", after: "5 s",
			begins: "no broker answers; records wait in the topic", ends: "brokers answer again",
			find: func(*state) []trouble {
				return each(a.readers, func(r *intakekafka.Reader) string {
					if err := r.Away(); err != nil {
						return fmt.Sprintf("intake %s reads nothing: no broker of its Kafka cluster answers: %v", r.Name(), err)
					}
					err := r.Unread()
					return textIf(err != nil, "intake %s cannot read records: %v", r.Name(), err)
				})
			}},
		{code: "intake", title: "the first record of a partition waits for the store, or for the failure topic", after: "1 min",
			metric: "toc_intake_lag", begins: "records wait for the store",
			find: func(*state) []trouble {
				return each(a.readers, func(r *intakekafka.Reader) string {
					text := r.Waits()
					return textIf(text != "", "intake %s: %s", r.Name(), text)
				})
			}},
		{code: string(worker.Unwritten), title: "a table refuses outcomes", after: "the next outcome",
			begins: "outcome waits: its table cannot be written", find: ofRunner(worker.Unwritten)},
		{code: string(worker.RowLocked), title: "a row is locked", after: "the next outcome",
			begins: "outcome waits: another transaction has locked the row", find: ofRunner(worker.RowLocked)},
		{code: "runs_stuck", title: "runs ignore their time-out", after: "10 s", metric: "toc_runs_stuck",
			find: func(s *state) []trouble { return each(s.stuck, ignoredTimeout) }},
		{code: "unknown_type", title: "tasks have a type that is not configured", after: "the next tick",
			metric: "toc_unknown_type_pending", begins: "due tasks of a biz_type that is not configured",
			find: func(s *state) []trouble {
				rows := s.unknown()
				return each(slices.Sorted(maps.Keys(rows)), func(id uint64) string {
					return fmt.Sprintf("%d overdue tasks have biz_type %d, which is not configured: they stay pending", rows[id], id)
				})
			}},
		a.notDurable(),
		{code: "database_down", title: "a database's server is down", after: "1 s", hides: true, metric: "toc_database_up",
			component: "store", level: slog.LevelWarn,
			begins: "database is out of reach, its partitions wait", ends: "database answers again",
			find: ofDatabases(func(d *database) (string, []any) {
				return textIf(d.Down != nil, "database %d is out of reach: %v", d.number, d.Down), []any{"error", d.Down}
			})},
		{code: "database_read_only", title: "a database is read-only", after: "1 s", hides: true, metric: "toc_database_up",
			component: "store", level: slog.LevelWarn, begins: "database refuses writes", ends: "database takes writes again",
			find: ofDatabases(func(d *database) (string, []any) {
				return textIf(d.IsReadOnly(), "database %d is read-only", d.number), []any{"error", d.Refusing}
			})},
		{code: "database_refuses_writes", title: "a database takes no rows (a full disk)", after: "the next write; 3 s", hides: true,
			metric: "toc_database_up", component: "store", level: slog.LevelWarn,
			begins: "database refuses writes", ends: "database takes writes again",
			find: ofDatabases(func(d *database) (string, []any) {
				refuses := d.Refusing != nil && !d.IsReadOnly()
				return textIf(refuses, "database %d refuses writes: %v", d.number, d.Refusing), []any{"error", d.Refusing}
			})},
		{code: "database_not_owned", after: "3 s", hides: true, begins: "lost a database; its partitions stop",
			title: "a node cannot work a database: it is not ready, or another process has it; `/readyz` has the reason",
			find:  ofDatabases(func(d *database) (string, []any) { return d.notOwned(), nil })},
		{code: "database_slow", title: "a database is slow: half a second an answer", after: "6 s",
			component: "store", level: slog.LevelWarn, begins: "database is slow", ends: "database is fast again",
			find: ofDatabases(func(d *database) (string, []any) {
				answer := d.Slow.Round(time.Millisecond)
				return textIf(d.Slow != 0, "database %d is slow: an answer takes %s", d.number, answer), []any{"answer", answer}
			})},
		{code: "database_unread", title: "a table is locked or gone", after: "the next tick",
			metric: "toc_oldest_overdue_seconds", begins: "database not scanned whole", ends: "database is scanned again",
			find: ofDatabases(func(d *database) (string, []any) {
				since, err := a.scanner.UnreadSince(d.number)
				mine := err != nil && d.owned // else another node reports it
				return textIf(mine, "database %d: some of its due tasks cannot be read, since %s: %v", d.number, utc(since), err), nil
			})},
	}
}

func utc(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// starting is what the start waits for.
func (s *state) starting() (found []trouble) {
	if s.app.open.Load() {
		return nil
	}
	for _, w := range s.waits {
		found = append(found, trouble{database: w.Database, text: "waiting for " + w.String()})
	}
	if len(found) == 0 && s.lost == "" {
		found = append(found, trouble{database: -1, text: "starting"})
	}
	return found
}

// ofRunner makes the find of the faults of a kind that package worker notices.
func ofRunner(kind worker.TroubleKind) func(s *state) []trouble {
	return func(s *state) (found []trouble) {
		for _, t := range s.app.runner.Degraded() {
			if t.Kind == kind {
				found = append(found, trouble{database: t.Database, text: t.Text})
			}
		}
		return found
	}
}

func ignoredTimeout(s worker.Stuck) string {
	if s.Runs > 1 {
		return fmt.Sprintf("%d runs of %s have ignored their time-out for %s", s.Runs, s.BizType, s.For.Round(time.Second))
	}
	return fmt.Sprintf("1 run of %s has ignored its time-out for %s", s.BizType, s.For.Round(time.Second))
}

// notOwned is why this node cannot work a database that it can read and write.
func (d *database) notOwned() string {
	text := fmt.Sprintf("database %d is not owned", d.number)
	if d.held {
		text = fmt.Sprintf("this node cannot work database %d", d.number)
	}
	switch {
	case d.wait != nil:
		return fmt.Sprintf("%s, since %s: %v", text, utc(d.wait.Since), d.wait.Err)
	case !d.held:
		return text + " yet"
	}
	return ""
}
