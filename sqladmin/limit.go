package sqladmin

import (
	"math"
	"strconv"
)

type limit struct{ count, offset uint64 }

// needed is how many rows of the merged answer decide the result; ok is false
// when that is more than can ever be there.
func (l *limit) needed() (rows int, ok bool) {
	const most = 1 << 40
	if l == nil || l.count > most || l.offset > most {
		return 0, false
	}
	return int(l.count + l.offset), true
}

func (q *Query) parseLimit(tokens []token) error {
	if tokens == nil {
		return nil
	}
	read := func(i int) (uint64, error) {
		t := at(tokens, i)
		n, err := strconv.ParseUint(t.raw, 10, 64)
		if t.kind != number || err != nil {
			if i >= len(tokens) {
				t = tokens[len(tokens)-1]
			}
			return 0, refused(t, "LIMIT takes whole numbers", "write LIMIT 10, LIMIT 10 OFFSET 20 or LIMIT 20, 10")
		}
		return n, nil
	}
	first, err := read(0)
	if err != nil {
		return err
	}
	q.limit = &limit{count: first}
	if len(tokens) == 1 {
		return nil
	}
	second, err := read(2)
	if err != nil {
		return err
	}
	switch {
	case len(tokens) > 3:
		return refused(tokens[3], "nothing may follow LIMIT", "")
	case tokens[1].is("OFFSET"):
		q.limit.offset = second
	case tokens[1].isOp(","):
		q.limit = &limit{count: second, offset: first}
	default:
		return refused(tokens[1], "LIMIT takes whole numbers", "write LIMIT 10, LIMIT 10 OFFSET 20 or LIMIT 20, 10")
	}
	if q.limit.offset > math.MaxInt {
		q.limit.offset = math.MaxInt
	}
	return nil
}
