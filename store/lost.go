package store

import (
	"errors"
	"time"
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
