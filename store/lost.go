package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// unansweredError: statements were sent and no answer came, so their outcome is unknown.
type unansweredError struct {
	err  error
	over bool // the server has stopped working on them: their effects can be read
}

func (e *unansweredError) Error() string {
	if e.over {
		return "the answer was lost: " + e.err.Error()
	}
	return "no answer, and it may still be done: " + e.err.Error()
}

func (e *unansweredError) Unwrap() error { return e.err }

// isOver reports whether the statements behind an error have ended, done or not.
func isOver(err error) bool {
	var e *unansweredError
	return errors.As(err, &e) && e.over
}

// endTimeout is the time for end: the part of Config.Timeout that the statement itself does not use.
func endTimeout(timeout time.Duration) time.Duration { return timeout / 8 }

// settle finds out the outcome of moves whose answer was lost, once it is final. They were committed together:
// if one of them was made, all that could be were.
func (s *Store) settle(ctx context.Context, database int, stamp time.Time, moves []Move, lost error) ([]bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout(s.cfg.Timeout))
	defer cancel()
	_, groups := s.moveStatements(database, stamp, moves, tableName)
	applied := make([]bool, len(moves))
	if err := s.findApplied(ctx, database, stamp, moves, groups, applied); err != nil {
		return nil, lost
	}
	if !slices.Contains(applied, true) {
		return nil, lost
	}
	return applied, nil
}

// areStored reports whether an insert whose answer was lost was committed, once that is final. An insert that
// only found first tasks looks like one that was not made.
func (s *Store) areStored(ctx context.Context, database int, batch []*insert) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout(s.cfg.Timeout))
	defer cancel()
	ids := make([]uint64, len(batch))
	mine := make(map[uint64]*task.Task, len(batch))
	for i, in := range batch {
		ids[i], mine[in.task.JobID] = in.task.JobID, &in.task
	}
	found, err := s.load(ctx, database, ids)
	return err == nil && slices.ContainsFunc(found, func(t task.Task) bool {
		m := mine[t.JobID]
		return t.BizID == m.BizID && t.BizType == m.BizType && t.Created.Equal(m.Created)
	})
}

// certainCounts returns the known counts of statements that were committed without an answer.
func certainCounts(statements []statement) []int64 {
	affected := make([]int64, len(statements))
	for i, st := range statements {
		if affected[i] = st.exactRows; st.exactRows == 0 {
			affected[i] = unknownCount
		}
	}
	return affected
}
