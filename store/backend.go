package store

import (
	"context"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/timeoutcenter/toc/sharding"
)

// backend is the difference between the kinds of database.
type backend interface {
	// reader is the connection pool for queries on a database.
	reader(database int) gorm.ConnPool
	// ping checks that a database answers within probeTimeout, once it is connected, and returns how long that
	// took.
	ping(ctx context.Context, database int) (took time.Duration, err error)
	// durability is Store.Durability.
	durability(ctx context.Context, database int) (faults []string, err error)
	// transact runs statements in one transaction, all or nothing, and returns how many rows each one changed;
	// see unknownCount. It waits for no lock, if the server supports this: callers that share the transaction
	// must not wait for another's row.
	transact(ctx context.Context, database int, statements []statement) (affected []int64, err error)
	// waitsForLocks reports whether transact waits for locks all the same.
	waitsForLocks(database int) bool
	// server numbers the servers. Databases with the same number can be written in one transaction, with their
	// tables named by qualified.
	server(database int) int
	qualified(database, table int) string
	// writesBlocked reports whether a lock of the whole server keeps everybody from writing.
	writesBlocked(ctx context.Context, database int) bool
	// lock takes a database for a holder; see Store.Lock.
	lock(ctx context.Context, database int, holder Holder) (Lock, error)
	// clock is the last reading of a database's clock; see Store.ServerClock.
	clock(database int) (ServerClock, bool)

	// Dialect.
	ignoreDuplicates() string                       // ends an INSERT: existing rows stay as they are
	hint(index string, table int) string            // names the index that a statement must use
	unionMember(query string) string                // makes a SELECT with a LIMIT a member of a UNION ALL
	deleteFrom(table int) string                    // DELETE from a table by primary key, up to WHERE
	countingExpr(database int, value string) string // SQL for value that also counts the rows it is assigned to
	// appendTo is SQL that appends a parameter to a column, NULL or not, and keeps the last characters.
	appendTo(column string, keep int) string
	idArg(v uint64) any                                          // a 64-bit id as a parameter
	timeArg(t time.Time) any                                     // a time as a parameter
	nullSafe() string                                            // compares two values of which both may be NULL
	isAt(column string, t time.Time) (condition string, arg any) // the column holds the time t, in any notation
	refusal(err error) refusal                                   // why the server refused
	close() error
}

// refusal is why a server refused a transaction: it is undone. The zero value is no refusal.
type refusal int

const (
	otherRefusal     refusal = iota + 1
	refusedDuplicate         // a unique key was violated
	refusedConflict          // deadlock: the same transaction may succeed now
	refusedLocked            // another transaction has locked a row or a table
	refusedSize              // too large; half of it may fit
	refusedFull              // the disk is full
	refusedReadOnly          // the server accepts no writes, from this user or any
	refusedTable             // the fault of one table: it is missing or damaged
	refusedStatement         // the statement was killed, or took too long for the server
	refusedData              // caused by one row's data; the rest of the batch can be retried
)

func (s *databases) isLocked(err error) bool { return s.backend.refusal(err) == refusedLocked }

// isOfTable reports whether a statement failed because of one table: locked, missing or broken.
func (s *databases) isOfTable(err error) bool {
	why := s.backend.refusal(err)
	return why == refusedLocked || why == refusedTable
}

// statement is one SQL statement with its parameters.
type statement struct {
	sql       string
	args      []any
	exactRows int64 // it changes exactly so many rows or fails; 0: the count is unknown
	maxRows   int64 // it assigns a counted value, to so many rows at most
}

// unknownCount: the counted statements of the transaction together changed fewer rows than their maximum, so
// the count of each one is unknown.
const unknownCount = -1

// Names of the indexes that hot statements must use; statistics are fixed on purpose (see migrations), so the
// optimizer decides nothing.
const (
	indexPrimary = "PRIMARY"
	indexDue     = "idx_status_action_time"
	indexBiz     = "uk_biz_id_biz_type_dedup_key"
)

// timeOrNull is a time as a parameter, NULL for the zero time.
func (s *databases) timeOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return s.backend.timeArg(t)
}

// placeholders returns "?,?,?" for n parameters.
func placeholders(n int) string {
	return strings.Repeat(",?", n)[1:]
}

// indexed is the table of a shard with an index hint.
func (s *databases) indexed(shard int, index string) string {
	table := s.layout.Table(shard)
	return sharding.TableName(table) + s.backend.hint(index, table)
}
