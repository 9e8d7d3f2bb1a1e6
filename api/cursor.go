package api

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"time"
)

// The lists that have cursors. A cursor of one is none of the other.
const (
	CursorTasks = 't'
	CursorDead  = 'd'
	listAudit   = 'a'
	listAll     = 'w'
)

var errCursor = errors.New("is no cursor of this list; give a next_cursor as it was answered")

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

// ParseCursor gives the job_id behind which a page begins, and the moment of the first page.
func ParseCursor(list byte, text []byte) (after uint64, asOf time.Time, err error) {
	raw, err := base64.RawURLEncoding.Strict().AppendDecode(nil, text)
	if err != nil || len(raw) != 9 && len(raw) != 17 || raw[0] != list {
		return 0, asOf, errCursor
	}
	if len(raw) == 17 {
		if asOf, err = moment(raw[9:]); err != nil {
			return 0, asOf, err
		}
	}
	return binary.BigEndian.Uint64(raw[1:]), asOf, nil
}

// moment reads milliseconds of Unix time.
func moment(raw []byte) (time.Time, error) {
	at := time.UnixMilli(int64(binary.BigEndian.Uint64(raw))).UTC()
	if at.Year() < 1 || at.Year() > 9999 {
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
func ParseAuditCursor(text []byte) (at time.Time, database int, id uint64, err error) {
	raw, err := base64.RawURLEncoding.Strict().AppendDecode(nil, text)
	if err != nil || len(raw) != 21 || raw[0] != listAudit {
		return time.Time{}, 0, 0, errCursor
	}
	at = time.UnixMilli(int64(binary.BigEndian.Uint64(raw[1:]))).UTC()
	if at.Year() < 1970 || at.Year() > 9999 {
		return time.Time{}, 0, 0, errCursor
	}
	return at, int(binary.BigEndian.Uint32(raw[9:])), binary.BigEndian.Uint64(raw[13:]), nil
}

// FormatPlaceCursor writes a place in the walk over all shards, and the moment of the walk's first page.
func FormatPlaceCursor(shard int, at time.Time, jobID uint64, asOf time.Time) string {
	raw := binary.BigEndian.AppendUint32([]byte{listAll}, uint32(shard))
	raw = binary.BigEndian.AppendUint64(raw, uint64(at.UnixMilli()))
	raw = binary.BigEndian.AppendUint64(raw, jobID)
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(raw, uint64(asOf.UnixMilli())))
}

// ParsePlaceCursor gives the place behind which a page of that walk begins, and the moment of the first page.
func ParsePlaceCursor(text []byte) (shard int, at time.Time, jobID uint64, asOf time.Time, err error) {
	raw, err := base64.RawURLEncoding.Strict().AppendDecode(nil, text)
	if err != nil || len(raw) != 29 || raw[0] != listAll {
		return 0, at, 0, asOf, errCursor
	}
	if at, err = moment(raw[5:13]); err == nil {
		asOf, err = moment(raw[21:])
	}
	return int(binary.BigEndian.Uint32(raw[1:])), at, binary.BigEndian.Uint64(raw[13:21]), asOf, err
}
