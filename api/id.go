package api

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/timeoutcenter/toc/task"
)

// ID is a 64-bit id, such as a job_id. As JSON it is written as a string,
// because a JavaScript number holds only 53 bits of it; it is read from a string
// or a number of digits only: no sign, fraction, exponent or leading zero.
type ID uint64

// ParseID reads an id written in decimal digits.
func ParseID(digits string) (ID, error) {
	n, ok := task.ParseNumber(digits)
	if !ok {
		return 0, notAnID(strconv.Quote(digits))
	}
	return ID(n), nil
}

// String gives the id in decimal digits.
func (id ID) String() string { return strconv.FormatUint(uint64(id), 10) }

// MarshalText gives the id in decimal digits.
func (id ID) MarshalText() ([]byte, error) { return strconv.AppendUint(nil, uint64(id), 10), nil }

// UnmarshalText reads decimal digits. It serves flags, paths and queries.
func (id *ID) UnmarshalText(digits []byte) error {
	n, err := ParseID(string(digits))
	if err == nil {
		*id = n
	}
	return err
}

// UnmarshalJSON reads the id from a string or a number. null is refused: an id
// that is not given is no id 0.
func (id *ID) UnmarshalJSON(value []byte) error {
	digits := string(value)
	if len(value) > 0 && value[0] == '"' {
		if err := json.Unmarshal(value, &digits); err != nil {
			return notAnID(digits)
		}
	}
	n, err := ParseID(digits)
	if err != nil {
		return notAnID(string(value))
	}
	*id = n
	return nil
}

func (id ID) appendJSON(dst []byte) []byte {
	return append(strconv.AppendUint(append(dst, '"'), uint64(id), 10), '"')
}

// notAnID says what would be right. shown is what was given, as it was written.
func notAnID(shown string) error {
	return fmt.Errorf("%.40s is not an id; write a whole number from 0 to 18446744073709551615, in digits only and without leading zeros",
		shown)
}
