package api

import (
	"encoding/base64"
	"encoding/binary"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// The lists that have cursors. A cursor of one is none of the other.
const (
	CursorTasks = 't'
	CursorDead  = 'd'
	listAudit   = 'a'
	listAll     = 'w'
)

var errCursor = task.Wrong("cursor", "is no cursor of this list; give a next_cursor as it was answered")

// decode reads a cursor of a list, which has one of these lengths. An empty text stands for the first page: then raw is nil.
func decode(list byte, text string, lengths ...int) (raw []byte, err error) {
	if text == "" {
		return nil, nil
	}
	raw, err = base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || !slices.Contains(lengths, len(raw)) || raw[0] != list {
		return nil, errCursor
	}
	return raw, nil
}

// FormatCursor writes a list, a job_id and, if it is not zero, the moment of the first page as base64url; "" if there is no
// next page.
func FormatCursor(list byte, after uint64, asOf time.Time) string {
	if after == 0 {
		return ""
	}
	raw := binary.BigEndian.AppendUint64([]byte{list}, after)
	if !asOf.IsZero() {
		raw = binary.BigEndian.AppendUint64(raw, uint64(asOf.UnixMilli()))
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// ParseCursor gives the job_id behind which a page begins, and the moment of the first page. Its errors, and those of the other
// cursors, are a *task.FieldError.
func ParseCursor(list byte, text string) (after uint64, asOf time.Time, err error) {
	raw, err := decode(list, text, 9, 17)
	if raw == nil {
		return 0, asOf, err
	}
	if len(raw) == 17 {
		asOf, err = moment(raw[9:], 1)
	}
	return binary.BigEndian.Uint64(raw[1:]), asOf, err
}

// moment reads milliseconds of Unix time, of the given year or later.
func moment(raw []byte, year int) (time.Time, error) {
	at := time.UnixMilli(int64(binary.BigEndian.Uint64(raw))).UTC()
	if at.Year() < year || at.Year() > 9999 {
		return time.Time{}, errCursor
	}
	return at, nil
}

// FormatAuditCursor writes the place of an entry of the audit; "" if there is no next page.
func FormatAuditCursor(at time.Time, database int, id uint64) string {
	if id == 0 {
		return ""
	}
	raw := binary.BigEndian.AppendUint64([]byte{listAudit}, uint64(at.UnixMilli()))
	raw = binary.BigEndian.AppendUint32(raw, uint32(database))
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(raw, id))
}

// ParseAuditCursor gives the place behind which a page of the audit begins.
func ParseAuditCursor(text string) (at time.Time, database int, id uint64, err error) {
	raw, err := decode(listAudit, text, 21)
	if raw == nil {
		return at, 0, 0, err
	}
	at, err = moment(raw[1:], 1970)
	return at, int(binary.BigEndian.Uint32(raw[9:])), binary.BigEndian.Uint64(raw[13:]), err
}

// FormatPlaceCursor writes a place in the walk over all shards, and the moment of the walk's first page.
func FormatPlaceCursor(shard int, at time.Time, jobID uint64, asOf time.Time) string {
	raw := binary.BigEndian.AppendUint32([]byte{listAll}, uint32(shard))
	raw = binary.BigEndian.AppendUint64(raw, uint64(at.UnixMilli()))
	raw = binary.BigEndian.AppendUint64(raw, jobID)
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(raw, uint64(asOf.UnixMilli())))
}

// ParsePlaceCursor gives the place behind which a page of that walk begins, and the moment of the first page.
func ParsePlaceCursor(text string) (shard int, at time.Time, jobID uint64, asOf time.Time, err error) {
	raw, err := decode(listAll, text, 29)
	if raw == nil {
		return 0, at, 0, asOf, err
	}
	if at, err = moment(raw[5:13], 1); err == nil {
		asOf, err = moment(raw[21:], 1)
	}
	return int(binary.BigEndian.Uint32(raw[1:])), at, binary.BigEndian.Uint64(raw[13:21]), asOf, err
}
