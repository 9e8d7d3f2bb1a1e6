package migrations

import "sync"

// progress counts tables over all databases.
type progress struct {
	mu     sync.Mutex
	report func(done, total int)
	tables int         // of one database
	total  int         // of all
	done   int         // of all
	perDB  map[int]int // database → its tables that are done
}

func newProgress(cfg Config) *progress {
	tables := cfg.Layout.TablesPerDatabase
	return &progress{
		report: cfg.Progress,
		tables: tables,
		total:  tables * len(cfg.Databases),
		perDB:  make(map[int]int),
	}
}

// reach says how many tables of a database are done. A repeated attempt starts
// again at one; what was reported stays.
func (p *progress) reach(database, tables int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if tables <= p.perDB[database] {
		return
	}
	p.done += tables - p.perDB[database]
	p.perDB[database] = tables
	if p.report != nil {
		p.report(p.done, p.total)
	}
}

func (p *progress) of(database int) (done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.perDB[database], p.tables
}
