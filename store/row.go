package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"gorm.io/gorm/schema"

	"github.com/timeoutcenter/toc/task"
)

// row is the GORM model of the task table: it names the columns for Go, as the migrations name them for SQL. If
// you change it, write the next numbered migration first; a test compares the two.
type row struct {
	JobID       unsigned       `gorm:"column:job_id;primaryKey"`
	GmtCreate   utc            `gorm:"column:gmt_create"`
	GmtModified utc            `gorm:"column:gmt_modified"`
	BizID       unsigned       `gorm:"column:biz_id"`
	BizType     unsigned       `gorm:"column:biz_type"`
	Status      uint8          `gorm:"column:status"`
	ActionTime  utc            `gorm:"column:action_time"`
	Attribute   string         `gorm:"column:attribute"`
	Attempts    uint8          `gorm:"column:attempts"`
	LastError   string         `gorm:"column:last_error"`
	DedupKey    sql.NullString `gorm:"column:dedup_key"`
	DueTime     sql.Null[utc]  `gorm:"column:due_time"`
	TimeoutMs   sql.NullInt64  `gorm:"column:timeout_ms"`
	Lease       unsigned       `gorm:"column:lease"`
	Trace       sql.NullString `gorm:"column:trace"`
	BizKey      sql.NullString `gorm:"column:biz_key"`
	Errors      sql.NullString `gorm:"column:errors"` // only FailedRuns reads it

	written any `gorm:"-"` // action_time in the database's own form; see rowCursor
}

// columns is the select list that scan reads: all but errors.
const columns = "job_id,gmt_create,gmt_modified,biz_id,biz_type,status,action_time,attribute,attempts,last_error,dedup_key," +
	"due_time,timeout_ms,lease,trace,biz_key"

// narrowColumns is columns with values in place of the columns that Due.Narrow leaves out.
const narrowColumns = "job_id,gmt_modified,gmt_modified,0,biz_type,status,action_time,'',attempts,'',NULL,NULL,NULL,NULL,NULL,NULL"

func (r *row) scan(rows *sql.Rows) error {
	err := rows.Scan(&r.JobID, &r.GmtCreate, &r.GmtModified, &r.BizID, &r.BizType, &r.Status,
		&r.written, &r.Attribute, &r.Attempts, &r.LastError, &r.DedupKey, &r.DueTime, &r.TimeoutMs, &r.Lease, &r.Trace, &r.BizKey)
	if err != nil {
		return err
	}
	return r.ActionTime.Scan(r.written)
}

func (r *row) task() task.Task {
	return task.Task{
		JobID: uint64(r.JobID), BizID: uint64(r.BizID), BizType: uint64(r.BizType),
		Status: task.Status(r.Status), ActionTime: time.Time(r.ActionTime),
		Attribute: r.Attribute, Attempts: int(r.Attempts), LastError: r.LastError, DedupKey: r.DedupKey.String,
		Created: time.Time(r.GmtCreate), Modified: time.Time(r.GmtModified),
		BizKey: r.BizKey.String, DueTime: time.Time(r.DueTime.V), Timeout: time.Duration(r.TimeoutMs.Int64) * time.Millisecond,
		Lease: uint64(r.Lease), Trace: r.Trace.String,
	}
}

// unsigned reads a BIGINT UNSIGNED; NULL is 0. SQLite has only signed integers, so it stores the two's complement.
type unsigned uint64

// Scan implements sql.Scanner.
func (u *unsigned) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*u = 0
	case int64:
		*u = unsigned(v)
	case uint64:
		*u = unsigned(v)
	case []byte:
		n, err := strconv.ParseUint(string(v), 10, 64)
		if err != nil {
			return err
		}
		*u = unsigned(n)
	default:
		return fmt.Errorf("%T is no 64-bit id", src)
	}
	return nil
}

// utc reads a DATETIME(3): time.Time from MySQL, text from SQLite. SQLite checks the form of action_time only.
// A gmt_create or gmt_modified that was written by hand and is not a time reads as the zero time, so that it
// does not stop a whole page.
type utc time.Time

// timeFormat is how SQLite stores times; it sorts as text.
const timeFormat = "2006-01-02 15:04:05.000"

// Scan implements sql.Scanner.
func (u *utc) Scan(src any) error {
	switch v := src.(type) {
	case time.Time:
		*u = utc(v.UTC())
	case string:
		*u = utc(parseTime(v))
	case []byte:
		*u = utc(parseTime(string(v)))
	default:
		return fmt.Errorf("%T is no time", src)
	}
	return nil
}

// inForm is GORM's serializer of the models' times and ids: it reads a column as utc and unsigned do. NULL is the zero value.
type inForm struct{}

// Scan implements schema.SerializerInterface.
func (inForm) Scan(ctx context.Context, field *schema.Field, model reflect.Value, column any) error {
	if column == nil {
		return nil
	}
	switch into := field.ReflectValueOf(ctx, model).Addr().Interface().(type) {
	case *time.Time:
		return (*utc)(into).Scan(column)
	case *uint64:
		return (*unsigned)(into).Scan(column)
	case **uint64:
		*into = new(uint64)
		return (*unsigned)(*into).Scan(column)
	}
	return fmt.Errorf("%s is neither a time nor an id", field.Name)
}

// Value implements schema.SerializerInterface. GORM only reads.
func (inForm) Value(context.Context, *schema.Field, reflect.Value, any) (any, error) {
	return nil, errors.ErrUnsupported
}

// parseTime parses "YYYY-MM-DD HH:MM:SS" with any fraction of a second. A row written by hand may have more
// digits than ours. They are rounded up, so that the task does not run before its time.
func parseTime(s string) time.Time {
	if len(s) == len(timeFormat) && s[19] == '.' {
		if t, ok := parseMillis(s); ok {
			return t
		}
	}
	t, err := time.Parse("2006-01-02 15:04:05.999999999", s)
	if err != nil {
		return time.Time{}
	}
	return task.CeilMilli(t)
}

// parseMillis parses timeFormat without a layout, for speed: every row of SQLite passes here.
func parseMillis(s string) (time.Time, bool) {
	num := func(from, to int) int {
		n := 0
		for _, c := range []byte(s[from:to]) {
			if c < '0' || c > '9' {
				return -1 << 20
			}
			n = n*10 + int(c-'0')
		}
		return n
	}
	y, mo, d := num(0, 4), num(5, 7), num(8, 10)
	h, mi, sec, ms := num(11, 13), num(14, 16), num(17, 19), num(20, 23)
	if y < 0 || mo < 1 || mo > 12 || d < 1 || d > 31 || h < 0 || mi < 0 || sec < 0 || ms < 0 {
		return time.Time{}, false
	}
	return time.Date(y, time.Month(mo), d, h, mi, sec, ms*int(time.Millisecond), time.UTC), true
}
