package wire

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"time"
)

// The lists that have cursors. A cursor of one is none of the other.
const (
	ListTasks = 't'
	ListDead  = 'd'
	listAudit = 'a'
	listAll   = 'w'
)

var errCursor = errors.New("is no cursor of this list; give a next_cursor as it was answered")

// FormatCursor writes list and job_id as base64url; "" if there is no next page.
func FormatCursor(list byte, after uint64) string {
	if after == 0 {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64([]byte{list}, after))
}

// ParseCursor gives the job_id behind which a page begins.
func ParseCursor(list byte, text []byte) (after uint64, err error) {
	raw, err := base64.RawURLEncoding.Strict().AppendDecode(nil, text)
	if err != nil || len(raw) != 9 || raw[0] != list {
		return 0, errCursor
	}
	return binary.BigEndian.Uint64(raw[1:]), nil
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

// FormatPlaceCursor writes a place in the walk over all shards.
func FormatPlaceCursor(shard int, at time.Time, jobID uint64) string {
	raw := binary.BigEndian.AppendUint32([]byte{listAll}, uint32(shard))
	raw = binary.BigEndian.AppendUint64(raw, uint64(at.UnixMilli()))
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(raw, jobID))
}

// ParsePlaceCursor gives the place behind which a page of that walk begins.
func ParsePlaceCursor(text []byte) (shard int, at time.Time, jobID uint64, err error) {
	raw, err := base64.RawURLEncoding.Strict().AppendDecode(nil, text)
	if err != nil || len(raw) != 21 || raw[0] != listAll {
		return 0, time.Time{}, 0, errCursor
	}
	at = time.UnixMilli(int64(binary.BigEndian.Uint64(raw[5:]))).UTC()
	if at.Year() < 1 || at.Year() > 9999 {
		return 0, time.Time{}, 0, errCursor
	}
	return int(binary.BigEndian.Uint32(raw[1:])), at, binary.BigEndian.Uint64(raw[13:]), nil
}
