package task

import (
	"crypto/md5" // spreads texts over the shards, as an admin can in SQL; guards nothing
	"encoding/binary"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// ParseNumber reads an unsigned 64-bit number as FormatUint writes it: decimal digits without a sign, a space or a
// leading zero. Every id that users send is read by it, so one number has one text: "007" is not 7.
func ParseNumber(text string) (n uint64, ok bool) {
	if len(text) > 1 && text[0] == '0' {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil
}

// ParseBizID reads a business's own id. A text that ParseNumber reads is that number and has no key. Any other text of
// 1 to MaxBizKey bytes of UTF-8 is a key, and its number is HashBizKey.
func ParseBizID(text string) (number uint64, key string, err error) {
	if n, ok := ParseNumber(text); ok {
		return n, "", nil
	}
	switch {
	case text == "":
		return 0, "", &FieldError{Field: "biz_id", Message: "is empty; give a whole number, or a text of up to 128 bytes"}
	case len(text) > MaxBizKey:
		return 0, "", &FieldError{Field: "biz_id", Message: fmt.Sprintf("has %d bytes; at most %d fit", len(text), MaxBizKey)}
	case !utf8.ValidString(text):
		return 0, "", &FieldError{Field: "biz_id", Message: "is not valid UTF-8"}
	}
	return HashBizKey(text), text, nil
}

// BizIDOf gives the biz_id that is meant by a number, or by a text if it is not empty.
func BizIDOf(number uint64, text string) (bizID uint64, bizKey string, err error) {
	if text == "" {
		return number, "", nil
	}
	bizID, bizKey, err = ParseBizID(text)
	if err == nil && number != 0 && number != bizID {
		err = &FieldError{Field: "biz_id", Message: "is given as a number and as a text; give one of them"}
	}
	return bizID, bizKey, err
}

// HashBizKey is the number of a text: the first 64 bits of its MD5. In MySQL: CONV(LEFT(MD5(text), 16), 16, 10).
func HashBizKey(text string) uint64 {
	sum := md5.Sum([]byte(text))
	return binary.BigEndian.Uint64(sum[:8])
}
