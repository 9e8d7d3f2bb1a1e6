package api

import (
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// The lists that have cursors. A cursor of one is none of the other.
const (
	CursorTasks = 't' // of a biz_id
	CursorDead  = 'd'
	CursorAudit = 'a'
	CursorAll   = 'w' // the walk over all tasks
)

// Cursor is the place behind which a page of a list begins. The fields that the list does not use are zero.
type Cursor struct {
	List byte
	Part int // shard or database
	At   time.Time
	ID   uint64
	AsOf time.Time // the moment of the first page
}

var errCursor = task.Wrong("cursor", "is no cursor of this list; give a next_cursor as it was answered")

// Next is the text of the cursor, as base64url; "" if there is no more.
func (c Cursor) Next(more bool) string {
	if !more {
		return ""
	}
	raw := binary.BigEndian.AppendUint32([]byte{c.List}, uint32(c.Part))
	raw = binary.BigEndian.AppendUint64(raw, uint64(c.At.UnixMilli()))
	raw = binary.BigEndian.AppendUint64(raw, c.ID)
	raw = binary.BigEndian.AppendUint64(raw, uint64(c.AsOf.UnixMilli()))
	return base64.RawURLEncoding.EncodeToString(raw)
}

// ParseCursor reads a cursor of a list. An empty text stands for the first page: then all other fields are zero. Its error is a
// *task.FieldError.
func ParseCursor(list byte, text string) (Cursor, error) {
	c := Cursor{List: list}
	if text == "" {
		return c, nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != 29 || raw[0] != list {
		return c, errCursor
	}
	c.Part, c.ID = int(binary.BigEndian.Uint32(raw[1:])), binary.BigEndian.Uint64(raw[13:])
	if c.At, err = moment(raw[5:]); err == nil {
		c.AsOf, err = moment(raw[21:])
	}
	return c, err
}

// moment reads milliseconds of Unix time.
func moment(raw []byte) (time.Time, error) {
	at := time.UnixMilli(int64(binary.BigEndian.Uint64(raw))).UTC()
	if at.Year() < 1 || at.Year() > 9999 {
		return time.Time{}, errCursor
	}
	return at, nil
}
