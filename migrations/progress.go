package migrations

import "sync"

// progress counts tables over all databases. A table is done when all steps have been through it.
type progress struct {
	mu     sync.Mutex
	report func(done, total int)
	tables int         // of one database
	total  int         // of all
	parts  int         // done in all databases: one for each table and step
	perDB  map[int]int // database → the same of its tables
}

func newProgress(cfg Config) *progress {
	return &progress{
		report: cfg.Progress,
		tables: cfg.Layout.TablesPerDatabase,
		total:  cfg.Layout.TablesPerDatabase * len(cfg.Databases),
		perDB:  make(map[int]int),
	}
}

// reach records how many tables of a database a step, by its place in steps, has been through. A repeated attempt
// starts again at one; the count that was reported stays.
func (p *progress) reach(database, step, tables int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	parts := step*p.tables + tables
	if parts <= p.perDB[database] {
		return
	}
	before := p.parts / len(steps)
	p.parts += parts - p.perDB[database]
	p.perDB[database] = parts
	if done := p.parts / len(steps); p.report != nil && done > before {
		p.report(done, p.total)
	}
}

func (p *progress) of(database int) (done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.perDB[database] / len(steps), p.tables
}
