package api_test

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/task"
)

// FuzzAppendJSON holds AppendJSON against encoding/json, byte by byte.
func FuzzAppendJSON(f *testing.F) {
	f.Add(uint64(1), uint64(2), "order_close", `{"a":"b"}`, "no\tanswer\n", "k", 3, int64(1767366245067), "")
	f.Add(uint64(0), ^uint64(0), "<&>", "\u2028\xff\x00\"\\", "", "\x7f", -1, int64(-1), "order-<42>")
	f.Fuzz(func(t *testing.T, job, biz uint64, name, attribute, lastError, dedup string, attempts int, milli int64, bizKey string) {
		milli %= 250_000_000_000_000 // years of four digits
		v := api.From(task.Task{
			JobID: job, BizID: biz, BizKey: bizKey, Timeout: time.Duration(attempts), DueTime: time.UnixMilli(milli / 3), Status: task.Status(job % 5), ActionTime: time.UnixMilli(milli), Attribute: attribute,
			Attempts: attempts, LastError: lastError, DedupKey: dedup, Created: time.UnixMilli(milli / 2),
		}, name)
		require.Equal(t, reference(t, v), string(v.AppendJSON(nil)))
	})
}

// FuzzID holds the reading of an id against the standard library's: a value is
// an id if it is a number or a string whose text is a uint64 in plain digits.
func FuzzID(f *testing.F) {
	for _, seed := range []string{`1`, `"1"`, `-1`, `1e3`, `"+1"`, `null`, `"\u0031"`, `18446744073709551616`, `[`, `"`, `"000"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		var id api.ID
		err := json.Unmarshal(value, &id)

		var text string
		var number json.Number
		if json.Unmarshal(value, &text) != nil && json.Unmarshal(value, &number) == nil {
			text = number.String()
		}
		want, wantErr := strconv.ParseUint(text, 10, 64)
		require.Equal(t, wantErr == nil && strconv.FormatUint(want, 10) == text, err == nil, "%q: %v", value, err)
		if err == nil {
			require.EqualValues(t, want, id)
		}

		direct := api.ID(7) // also on what is no JSON
		if direct.UnmarshalJSON(value) != nil {
			require.EqualValues(t, 7, direct)
		}
	})
}
