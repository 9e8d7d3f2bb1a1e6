package migrations

import "sync"

// progress counts tables over all databases. A table that needs several steps is done by parts.
type progress struct {
	mu     sync.Mutex
	report func(done, total int)
	tables int         // of one database
	total  int         // of all
	done   int         // of all, times steps
	perDB  map[int]int // database → the same of its tables
	steps  int         // that each table needs
}

func newProgress(cfg Config) *progress {
	tables := cfg.Layout.TablesPerDatabase
	perTable := 0
	for _, s := range steps {
		if s.perTable {
			perTable++
		}
	}
	return &progress{
		steps:  perTable,
		report: cfg.Progress,
		tables: tables,
		total:  tables * len(cfg.Databases),
		perDB:  make(map[int]int),
	}
}

// reach records how many tables of a database have been through how many of their steps, the one under way
// included. A repeated attempt starts again at one; what was reported stays.
func (p *progress) reach(database, step, tables int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	parts := (step-1)*p.tables + tables
	if parts <= p.perDB[database] {
		return
	}
	before := p.done / p.steps
	p.done += parts - p.perDB[database]
	p.perDB[database] = parts
	if p.report != nil && p.done/p.steps > before {
		p.report(p.done/p.steps, p.total)
	}
}

func (p *progress) of(database int) (done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.perDB[database] / p.steps, p.tables
}
