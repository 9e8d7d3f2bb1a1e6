package store

import (
	"context"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/timeoutcenter/toc/sharding"
)

// backend is what differs between the kinds of database.
type backend interface {
	// reader is the GORM handle for queries on a database.
	reader(database int) *gorm.DB
	// ping tells whether a database answers within probeTimeout, once it is connected, and after how long.
	ping(ctx context.Context, database int) (took time.Duration, err error)
	// transact runs statements in one transaction, all or nothing, and tells how
	// many rows each one changed; see unsure. It waits for no lock, if the server knows
	// how: who shares the transaction must not wait for another's row.
	transact(ctx context.Context, database int, statements []statement) (affected []int64, err error)
	// waits tells whether transact waits for locks all the same.
	waitsForLocks(database int) bool
	// server numbers the servers: databases with the same number can be written in
	// one transaction, their tables named by qualified.
	server(database int) int
	qualified(database, table int) string
	// lock takes a database for a holder; see Store.Lock.
	lock(ctx context.Context, database int, holder Holder) (Lock, error)
	// clock is the last reading of a database's clock; see Store.ServerClock.
	clock(database int) (ServerClock, bool)

	// Dialect.
	ignoreDuplicates() string                                       // ends an INSERT: rows that exist already stay as they are
	hint(index string, table int) string                            // names the index that a statement reads by
	unionMember(query string) string                                // makes a SELECT with a LIMIT a member of a UNION ALL
	deleteFrom(table int) string                                    // DELETE from a table by primary key, up to WHERE
	countingExpr(database int, value string) string                 // a number to set; how many rows were set to it is counted
	idArg(v uint64) any                                             // a 64-bit id as a parameter
	timeArg(t time.Time) any                                        // a time as a parameter
	nullSafe() string                                               // compares two values of which both may be NULL
	isAt(column string, t time.Time) (condition string, args []any) // a column holds the time t, however it is written
	refusal(err error) refusal                                      // why the server said no
	close() error
}

// refusal is why a server said no: the transaction is undone. The zero value is no refusal.
type refusal int

const (
	otherRefusal     refusal = iota + 1
	refusedDuplicate         // a unique key was violated
	refusedConflict          // deadlock: the same transaction may succeed now
	refusedLocked            // the lock of another transaction is in the way of a row or a table
	refusedSize              // half of it may fit
	refusedFull              // the disk has no room for it
	refusedReadOnly          // the server takes no writes from us, or from nobody
	refusedTable             // the fault of one table: it is missing or damaged
	refusedStatement         // it was killed, or took too long for the server
	refusedData              // a row's own fault: the others of its batch are innocent
)

func (s *Store) isLocked(err error) bool { return s.backend.refusal(err) == refusedLocked }

// isOfTable tells whether a statement failed because of one table: locked, missing or broken.
func (s *Store) isOfTable(err error) bool {
	why := s.backend.refusal(err)
	return why == refusedLocked || why == refusedTable
}

// statement is one SQL statement with its parameters.
type statement struct {
	sql       string
	args      []any
	exactRows int64 // it changes so many rows or fails; 0: how many is to be found out
	maxRows   int64 // it sets a value that is counted, in so many rows at most
}

// unsure is told of a statement that sets a counted value when some of the
// transaction's statements changed less than their most, and it is not known which.
const unknownCount = -1

// Names of the indexes that hot statements are told to use; statistics stand
// still on purpose (see migrations), so nothing is left to the optimizer.
const (
	indexPrimary = "PRIMARY"
	indexDue     = "idx_status_action_time"
	indexBiz     = "uk_biz_id_biz_type_dedup_key"
)

// placeholders gives "?,?,?" for n parameters.
func placeholders(n int) string {
	return strings.Repeat(",?", n)[1:]
}

// indexed is the table of a shard, to be read by an index.
func (s *Store) indexed(shard int, index string) string {
	table := s.layout.Table(shard)
	return sharding.TableName(table) + s.backend.hint(index, table)
}
