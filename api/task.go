package api

import (
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/timeoutcenter/toc/task"
)

// Task is a task as JSON, as GET /v1/tasks/{job_id} answers it. Empty timeout, attribute, last_error and dedup_key are
// left out, and so is a time that is not known; attempts is always there.
type Task struct {
	JobID      ID       `json:"job_id" doc:"Unique id of the task" example:"413351953711104"`
	BizType    string   `json:"biz_type" doc:"Name of the business type" example:"order_close"`
	BizID      BizID    `json:"biz_id" doc:"The business's own id" example:"42"`
	Status     string   `json:"status" enum:"pending,processed,cancelled,dead"`
	ActionTime Time     `json:"action_time" doc:"Next time to run"`
	DueTime    Time     `json:"due_time" doc:"The time that was promised: action_time as it was submitted or last rescheduled"`
	Timeout    Duration `json:"timeout,omitzero" doc:"How long one run may take; left out: as long as its business type says" example:"1.5s"`
	Attribute  string   `json:"attribute,omitempty" doc:"The caller's payload"`
	Attempts   int      `json:"attempts" doc:"Failed runs so far"`
	LastError  string   `json:"last_error,omitempty" doc:"Why the last failed run failed"`
	DedupKey   string   `json:"dedup_key,omitempty" doc:"Idempotency key of the submit"`
	Created    Time     `json:"gmt_create,omitzero"`
	Modified   Time     `json:"gmt_modified,omitzero"`
	Running    *Running `json:"running,omitempty" doc:"Where it runs now. Only in the answer to a look-up of one pending task."`

	// ETag names this state of the task, where it came with the header of that name; see client.IfMatch.
	ETag string `json:"-"`
}

// Running says where a task runs.
type Running struct {
	Node  string `json:"node,omitempty" doc:"Name of the node that runs it. Left out if a consumer has leased it" example:"node-1"`
	Since Time   `json:"since" doc:"When it was started; when its lease was given or extended"`
	Until Time   `json:"until,omitzero" doc:"When its lease ends"`
}

// Task gives what t stands for. bizType is the id that t.BizType stands for.
func (t Task) Task(bizType uint64) (task.Task, error) {
	status, err := task.ParseStatus(t.Status)
	got := task.Task{
		JobID:      uint64(t.JobID),
		BizID:      t.BizID.Number,
		BizKey:     t.BizID.Key,
		BizType:    bizType,
		Status:     status,
		ActionTime: t.ActionTime.Time(),
		Timeout:    time.Duration(t.Timeout),
		Attribute:  t.Attribute,
		Attempts:   t.Attempts,
		LastError:  t.LastError,
		DedupKey:   t.DedupKey,
		Created:    t.Created.Time(),
		Modified:   t.Modified.Time(),
	}
	if due := t.DueTime.Time(); !due.Equal(got.ActionTime) {
		got.DueTime = due
	}
	return got, err
}

// From gives the JSON form of t. bizType is the name that t.BizType stands for.
func From(t task.Task, bizType string) Task {
	return Task{
		JobID:      ID(t.JobID),
		BizType:    bizType,
		BizID:      BizID{t.BizID, t.BizKey},
		Status:     t.Status.String(),
		ActionTime: Time(t.ActionTime),
		DueTime:    Time(t.Promised()),
		Timeout:    Duration(t.Timeout),
		Attribute:  t.Attribute,
		Attempts:   t.Attempts,
		LastError:  t.LastError,
		DedupKey:   t.DedupKey,
		Created:    Time(t.Created),
		Modified:   Time(t.Modified),
	}
}

// frame is about the length of a Task as JSON without its texts.
const frame = 400

// AppendJSON appends t as JSON to dst: the bytes that encoding/json makes of it
// (without its escapes for HTML), several times cheaper. The hot paths use it:
// every webhook call and every answered task.
//
// Task is not a json.Marshaler on purpose: encoding/json would then check these
// bytes again, and a struct that embeds a Task would lose its other fields.
func (t Task) AppendJSON(dst []byte) []byte {
	dst = slices.Grow(dst, frame+len(t.BizID.Key)+len(t.Attribute)+len(t.LastError)+len(t.DedupKey))
	dst = t.JobID.appendJSON(append(dst, `{"job_id":`...))
	dst = appendString(append(dst, `,"biz_type":`...), t.BizType)
	dst = t.BizID.appendJSON(append(dst, `,"biz_id":`...))
	dst = appendString(append(dst, `,"status":`...), t.Status)
	dst = t.ActionTime.appendJSON(append(dst, `,"action_time":`...))
	dst = t.DueTime.appendJSON(append(dst, `,"due_time":`...))
	if t.Timeout != 0 {
		dst = appendString(append(dst, `,"timeout":`...), t.Timeout.String())
	}
	if t.Attribute != "" {
		dst = appendString(append(dst, `,"attribute":`...), t.Attribute)
	}
	dst = strconv.AppendInt(append(dst, `,"attempts":`...), int64(t.Attempts), 10)
	if t.LastError != "" {
		dst = appendString(append(dst, `,"last_error":`...), t.LastError)
	}
	if t.DedupKey != "" {
		dst = appendString(append(dst, `,"dedup_key":`...), t.DedupKey)
	}
	if !t.Created.IsZero() {
		dst = t.Created.appendJSON(append(dst, `,"gmt_create":`...))
	}
	if !t.Modified.IsZero() {
		dst = t.Modified.appendJSON(append(dst, `,"gmt_modified":`...))
	}
	if t.Running != nil {
		dst = append(dst, `,"running":{`...)
		if t.Running.Node != "" {
			dst = append(appendString(append(dst, `"node":`...), t.Running.Node), ',')
		}
		dst = t.Running.Since.appendJSON(append(dst, `"since":`...))
		if !t.Running.Until.IsZero() {
			dst = t.Running.Until.appendJSON(append(dst, `,"until":`...))
		}
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

// appendString appends s as a JSON string. Stretches that need no escape are
// copied whole. What is not UTF-8 becomes U+FFFD, and U+2028 and U+2029 are
// escaped, as encoding/json does.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	copied := 0
	for i := 0; i < len(s); {
		if s[i] >= ' ' && s[i] < utf8.RuneSelf && s[i] != '"' && s[i] != '\\' {
			i++
			continue
		}
		escape, size := escapeAt(s[i:])
		if escape != "" {
			dst = append(dst, s[copied:i]...)
			dst = append(dst, escape...)
			copied = i + size
		}
		i += size
	}
	dst = append(dst, s[copied:]...)
	return append(dst, '"')
}

// escapeAt gives the escape for the first character of s, or "" if it stands
// for itself, and the length of that character in bytes.
func escapeAt(s string) (escape string, size int) {
	if s[0] < utf8.RuneSelf {
		return asciiEscapes[s[0]], 1
	}
	r, size := utf8.DecodeRuneInString(s)
	switch {
	case r == utf8.RuneError && size == 1:
		return `\ufffd`, 1
	case r == '\u2028':
		return `\u2028`, size
	case r == '\u2029':
		return `\u2029`, size
	default:
		return "", size
	}
}

// asciiEscapes holds the escapes of the ASCII characters that need one.
var asciiEscapes = func() (table [utf8.RuneSelf]string) {
	const hex = "0123456789abcdef"
	for c := range ' ' {
		table[c] = `\u00` + string(hex[c>>4]) + string(hex[c&15])
	}
	table['"'], table['\\'] = `\"`, `\\`
	table['\b'], table['\f'], table['\n'], table['\r'], table['\t'] = `\b`, `\f`, `\n`, `\r`, `\t`
	return table
}()
