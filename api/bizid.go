package api

import (
	"encoding/json"
	"errors"
	"strconv"

	"github.com/timeoutcenter/toc/task"
)

// BizID is a business's own id: a number, or a text. As JSON it is written as a
// string. It is read from a number in digits only, or from a string: one that
// task.ParseNumber reads is a number, any other one of 1 to 128 bytes is a text.
type BizID struct {
	Number uint64 // the number; of a text its hash, which is the task's biz_id
	Key    string // the text; empty: the id is a number
}

// BizIDOf gives the biz_id that is meant by a number, or by a text if it is not
// empty. The error is a *task.FieldError.
func BizIDOf(number uint64, text string) (BizID, error) {
	number, key, err := task.BizIDOf(number, text)
	return BizID{number, key}, err
}

// ParseBizID reads a biz_id. The error does not name the field.
func ParseBizID(text string) (BizID, error) {
	number, key, err := task.ParseBizID(text)
	if wrong, ok := errors.AsType[*task.FieldError](err); ok {
		err = errors.New(wrong.Message)
	}
	return BizID{number, key}, err
}

// String gives the id as users see it.
func (id BizID) String() string {
	if id.Key != "" {
		return id.Key
	}
	return strconv.FormatUint(id.Number, 10)
}

// MarshalText gives the id as users see it.
func (id BizID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads a biz_id. It serves flags and queries.
func (id *BizID) UnmarshalText(text []byte) (err error) {
	read, err := ParseBizID(string(text))
	if err == nil {
		*id = read
	}
	return err
}

// UnmarshalJSON reads a biz_id from a string or a number. null is refused.
func (id *BizID) UnmarshalJSON(value []byte) error {
	if len(value) == 0 || value[0] != '"' {
		var number ID
		if err := number.UnmarshalJSON(value); err != nil {
			return errors.New(err.Error() + ", or a text as a string")
		}
		*id = BizID{Number: uint64(number)}
		return nil
	}
	var text string
	if err := json.Unmarshal(value, &text); err != nil {
		return err
	}
	return id.UnmarshalText([]byte(text))
}

func (id BizID) appendJSON(dst []byte) []byte {
	if id.Key != "" {
		return appendString(dst, id.Key)
	}
	return ID(id.Number).appendJSON(dst)
}
