package wire

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
)

// The lists that have cursors. A cursor of one is none of the other.
const (
	ListTasks = 't'
	ListDead  = 'd'
)

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
		return 0, errors.New("is no cursor of this list; give a next_cursor as it was answered")
	}
	return binary.BigEndian.Uint64(raw[1:]), nil
}
