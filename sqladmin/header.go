package sqladmin

import (
	"fmt"
	"strings"
)

// header is what the columns of an answer are: of the result (labels, ids), and
// of the rows that the databases send (unsigned, compared).
type header struct {
	labels   []string
	ids      []bool // a result column that holds ids
	unsigned []bool // a cell that is a plain id column
	compared []bool // a cell that is sorted by
}

// header is known when a database has told what * stands for.
func (p *plan) header(names []string) (*header, error) {
	q := p.query
	stars, visible := 0, 0
	for i, it := range q.items {
		if it.star {
			stars++
		} else {
			visible += p.folds[i].cells
		}
	}
	width := 0 // of one star
	if stars > 0 {
		width = (len(names) - p.hidden - visible) / stars
	}
	if visible+stars*width+p.hidden != len(names) {
		return nil, fmt.Errorf("the select list has %d columns, the answer has %d", visible+stars*width+p.hidden, len(names))
	}
	h := &header{}
	cell := func(column string, compared bool) {
		h.unsigned = append(h.unsigned, idColumns[column])
		h.compared = append(h.compared, compared)
	}
	for i, it := range q.items {
		if it.star {
			for range width {
				name := names[len(h.unsigned)]
				h.labels = append(h.labels, name)
				h.ids = append(h.ids, idColumns[strings.ToLower(name)])
				cell(strings.ToLower(name), false)
			}
			continue
		}
		holds := it.column
		if it.call == minOf || it.call == maxOf {
			holds = plainColumn(it.arg)
		}
		h.labels = append(h.labels, it.label)
		h.ids = append(h.ids, idColumns[holds])
		for range p.folds[i].cells {
			cell(it.column, it.call == minOf || it.call == maxOf || q.sortsBy(i))
		}
	}
	if q.folded {
		for i, g := range q.groups {
			cell(g.column, q.sortsBy(len(q.items)+i))
		}
		return h, nil
	}
	for range q.orders {
		cell("", true)
	}
	return h, nil
}

// sortsBy tells whether ORDER BY of a folded query names the place.
func (q *Query) sortsBy(place int) bool {
	if !q.folded {
		return false
	}
	for _, o := range q.orders {
		if o.place == place {
			return true
		}
	}
	return false
}
