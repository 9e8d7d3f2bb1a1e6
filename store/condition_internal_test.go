package store

import (
	"context"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

// A write that waits names what the operator looks at. One whose answer was lost on the way, and one that was refused, do not.
func TestNameRefusal(t *testing.T) {
	waits := nameRefusal(&unansweredError{err: context.DeadlineExceeded})
	require.ErrorContains(t, waits, "while the server's disk is full")
	require.ErrorIs(t, waits, context.DeadlineExceeded)
	lost := &unansweredError{err: context.DeadlineExceeded, over: true}
	require.Equal(t, error(lost), nameRefusal(lost))
	full := &mysql.MySQLError{Number: 1114}
	require.Equal(t, error(full), nameRefusal(full))
	require.ErrorIs(t, nameRefusal(&mysql.MySQLError{Number: 1290}), ErrReadOnly)
	require.NoError(t, nameRefusal(nil))
}
