package sqladmin

import (
	"slices"
	"sync"
)

// merger makes one answer of the rows that come from the shards. add may be
// called from several goroutines at once; enough tells that no further row can
// change the answer.
type merger interface {
	add(source int, row []any) error
	enough() bool
	rows() [][]any
}

func (p *plan) merger(sources int) merger {
	if p.query.folded {
		return &groupMerger{plan: p, groups: map[string]*groupRow{}}
	}
	m := &rowMerger{plan: p, bySource: make([][][]any, sources)}
	m.most, m.limited = p.query.limit.needed()
	if p.query.distinct {
		m.seen = map[string]bool{}
	}
	return m
}

// cutOff is the part of sorted rows that LIMIT leaves.
func (q *Query) cutOff(rows [][]any) [][]any {
	if q.limit == nil {
		return rows
	}
	rows = rows[min(q.limit.offset, uint64(len(rows))):]
	return rows[:min(q.limit.count, uint64(len(rows)))]
}

// rowMerger lays rows under one another, in the order of the databases or of
// ORDER BY, whose keys are the last cells of a row.
type rowMerger struct {
	plan    *plan
	most    int  // rows that decide the answer
	limited bool // most counts

	mu       sync.Mutex
	bySource [][][]any
	count    int
	seen     map[string]bool // of a DISTINCT query
}

func (m *rowMerger) add(source int, row []any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen != nil {
		k := key(row[:len(row)-m.plan.hidden])
		if m.seen[k] {
			return nil
		}
		m.seen[k] = true
	}
	m.count++
	m.bySource[source] = append(m.bySource[source], row)
	const slack = 4096 // sort seldom
	if rows := m.bySource[source]; m.limited && len(m.plan.query.orders) > 0 && len(rows) >= 2*m.most+slack {
		m.sort(rows)
		clear(rows[m.most:])
		m.bySource[source] = rows[:m.most]
	}
	return nil
}

func (m *rowMerger) enough() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.limited && len(m.plan.query.orders) == 0 && m.count >= m.most
}

func (m *rowMerger) rows() [][]any {
	all := slices.Concat(m.bySource...)
	m.sort(all)
	all = m.plan.query.cutOff(all)
	for i, row := range all {
		all[i] = row[:len(row)-m.plan.hidden]
	}
	return all
}

func (m *rowMerger) sort(rows [][]any) {
	orders := m.plan.query.orders
	if len(orders) == 0 {
		return
	}
	slices.SortStableFunc(rows, func(a, b []any) int {
		keys := len(a) - m.plan.hidden
		for i, o := range orders {
			if c := o.compare(a[keys+i], b[keys+i]); c != 0 {
				return c
			}
		}
		return 0
	})
}

func (o order) compare(a, b any) int {
	if o.desc {
		a, b = b, a
	}
	return compare(a, b)
}

// groupMerger folds the rows of one group into one; without GROUP BY all rows
// are one group.
type groupMerger struct {
	plan *plan

	mu     sync.Mutex
	groups map[string]*groupRow
}

type groupRow struct {
	folders []folder
	keys    []any
}

func (m *groupMerger) add(_ int, row []any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := row[len(row)-m.plan.hidden:]
	k := key(keys)
	g := m.groups[k]
	if g == nil {
		g = &groupRow{keys: keys}
		for _, f := range m.plan.folds {
			g.folders = append(g.folders, f.start())
		}
		m.groups[k] = g
	}
	for i, f := range m.plan.folds {
		if err := g.folders[i].add(row[:f.cells]); err != nil {
			return err
		}
		row = row[f.cells:]
	}
	return nil
}

func (m *groupMerger) enough() bool { return false }

// rows sorts by ORDER BY and then by the groups, so that equal questions have
// equal answers.
func (m *groupMerger) rows() [][]any {
	q := m.plan.query
	var all [][]any
	for _, g := range m.groups {
		var row []any
		for _, f := range g.folders {
			row = append(row, f.value())
		}
		all = append(all, append(row, g.keys...))
	}
	slices.SortFunc(all, func(a, b []any) int {
		for _, o := range q.orders {
			if c := o.compare(a[o.place], b[o.place]); c != 0 {
				return c
			}
		}
		for i := len(q.items); i < len(a); i++ {
			if c := compare(a[i], b[i]); c != 0 {
				return c
			}
		}
		return 0
	})
	all = q.cutOff(all)
	for i, row := range all {
		all[i] = row[:len(q.items)]
	}
	return all
}
