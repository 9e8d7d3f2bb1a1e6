package api

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// ReadJSON reads an answer as encoding/json would, several times cheaper if it is as AppendJSON writes it.
func (t *Task) ReadJSON(text []byte) error { return readJSON(t, text, (*reader).task) }

// ReadJSON is that of a Task.
func (a *LeaseAnswer) ReadJSON(text []byte) error {
	return readJSON(a, text, func(r *reader, a *LeaseAnswer) {
		a.Tasks = readList(r, `{"tasks":`, (*reader).leasedTask)
		a.Paused = r.has(`,"paused":true`)
		if !a.Paused {
			r.take(`,"paused":false`)
		}
		if r.has(`,`) {
			a.Results = readList(r, `"results":`, (*reader).settled)
		}
		r.take(`}`)
	})
}

// ReadJSON is that of a Task.
func (a *SettleAnswer) ReadJSON(text []byte) error {
	return readJSON(a, text, func(r *reader, a *SettleAnswer) {
		a.Results = readList(r, `{"results":`, (*reader).settled)
		r.take(`}`)
	})
}

// ReadJSON is that of a Task. A batch whose tasks are all stored is as AppendJSON writes it.
func (a *BatchAnswer) ReadJSON(text []byte) error {
	return readJSON(a, text, func(r *reader, a *BatchAnswer) {
		a.Results = readList(r, `{"results":`, (*reader).batchResult)
		r.take(`}`)
	})
}

// readJSON reads a text that is in the form of AppendJSON. It leaves any other one to encoding/json: that of a newer center, say.
func readJSON[T any](v *T, text []byte, read func(*reader, *T)) error {
	r := reader{rest: bytes.TrimSuffix(text, []byte("\n"))}
	var got T
	if read(&r, &got); r.isOther || len(r.rest) > 0 {
		return json.NewDecoder(bytes.NewReader(text)).Decode(v)
	}
	*v = got
	return nil
}

// reader reads JSON in the order and the spelling of AppendJSON.
type reader struct {
	rest    []byte
	isOther bool   // the text is not in that form
	bizType string // the last one: most tasks of an answer have the same
}

// has takes a text if it comes next.
func (r *reader) has(text string) bool {
	if len(r.rest) < len(text) || string(r.rest[:len(text)]) != text {
		return false
	}
	r.rest = r.rest[len(text):]
	return true
}

func (r *reader) take(text string) {
	if !r.has(text) {
		r.isOther = true
	}
}

// quoted takes a JSON string, with its quotes, and reports whether its text is what stands between them.
func (r *reader) quoted() (value []byte, isPlain bool) {
	isPlain = true
	if len(r.rest) > 0 && r.rest[0] == '"' {
		for i := 1; i < len(r.rest); i++ {
			switch c := r.rest[i]; {
			case c == '"':
				value, r.rest = r.rest[:i+1], r.rest[i+1:]
				return value, isPlain
			case c == '\\':
				isPlain = false
				i++
			case c >= utf8.RuneSelf:
				isPlain = false
			case c < ' ':
				r.isOther = true
			}
		}
	}
	r.isOther, r.rest = true, nil
	return []byte(`""`), true
}

// text takes a JSON string.
func (r *reader) text() string {
	value, isPlain := r.quoted()
	if isPlain {
		return string(value[1 : len(value)-1])
	}
	text, err := Unquote(value)
	r.isOther = r.isOther || err != nil
	return text
}

// value takes a JSON string that unmarshal reads.
func (r *reader) value(unmarshal func(value []byte) error) {
	value, isPlain := r.quoted()
	if !isPlain || unmarshal(value[1:len(value)-1]) != nil {
		r.isOther = true
	}
}

func (r *reader) number() int {
	end := 0
	for end < len(r.rest) && r.rest[end] >= '0' && r.rest[end] <= '9' {
		end++
	}
	n, err := strconv.Atoi(string(r.rest[:end]))
	if err != nil || end > 1 && r.rest[0] == '0' {
		r.isOther = true
	}
	r.rest = r.rest[end:]
	return n
}

// word takes a string that is most often one of these.
func (r *reader) word(known ...string) string {
	for _, w := range known {
		if n := len(w) + 2; len(r.rest) >= n && r.rest[0] == '"' && r.rest[n-1] == '"' && string(r.rest[1:n-1]) == w {
			r.rest = r.rest[n:]
			return w
		}
	}
	return r.text()
}

func (r *reader) id(id *ID) {
	value, _ := r.quoted()
	if id.UnmarshalJSON(value) != nil {
		r.isOther = true
	}
}

// readList takes a name and a list.
func readList[T any](r *reader, name string, read func(*reader, *T)) []T {
	list := []T{}
	r.take(name)
	r.take(`[`)
	if r.has(`]`) {
		return list
	}
	for !r.isOther {
		list = append(list, *new(T))
		read(r, &list[len(list)-1])
		if r.has(`]`) {
			break
		}
		r.take(`,`)
	}
	return list
}

func (r *reader) task(t *Task) {
	r.take(`{"job_id":`)
	r.id(&t.JobID)
	r.take(`,"biz_type":`)
	t.BizType = r.word(r.bizType)
	r.bizType = t.BizType
	r.take(`,"biz_id":`)
	value, _ := r.quoted()
	if t.BizID.UnmarshalJSON(value) != nil {
		r.isOther = true
	}
	r.take(`,"status":`)
	t.Status = r.word("pending", "processed", "cancelled", "dead")
	r.take(`,"action_time":`)
	r.value(t.ActionTime.UnmarshalText)
	r.take(`,"due_time":`)
	r.value(t.DueTime.UnmarshalText)
	if r.has(`,"timeout":`) {
		r.value(t.Timeout.UnmarshalText)
	}
	if r.has(`,"attribute":`) {
		t.Attribute = r.text()
	}
	r.take(`,"attempts":`)
	t.Attempts = r.number()
	if r.has(`,"last_error":`) {
		t.LastError = r.text()
	}
	if r.has(`,"dedup_key":`) {
		t.DedupKey = r.text()
	}
	if r.has(`,"gmt_create":`) {
		r.value(t.Created.UnmarshalText)
	}
	if r.has(`,"gmt_modified":`) {
		r.value(t.Modified.UnmarshalText)
	}
	r.take(`}`)
}

func (r *reader) leasedTask(t *LeasedTask) {
	r.take(`{"lease":`)
	r.value(t.Lease.UnmarshalText)
	r.take(`,"expires_at":`)
	r.value(t.ExpiresAt.UnmarshalText)
	r.take(`,"attempt":`)
	t.Attempt = r.number()
	if r.has(`,"traceparent":`) {
		t.Traceparent = r.text()
	}
	r.take(`,"task":`)
	r.task(&t.Task)
	r.take(`}`)
}

func (r *reader) settled(s *Settled) {
	r.take(`{"lease":`)
	s.Lease = r.text()
	r.take(`,"result":`)
	s.Result = r.word(SettledOK, SettledLost, SettledInvalid, SettledUnavailable)
	r.take(`}`)
}

func (r *reader) batchResult(b *BatchResult) {
	if r.has(`{"job_id":`) {
		r.id(&b.JobID)
		r.take(`}`)
		return
	}
	b.Answer = &SubmitAnswer{Task: &Task{}}
	r.take(`{"answer":{"status":`)
	b.Answer.Status = r.number()
	r.take(`,"etag":`)
	b.Answer.ETag = r.text()
	r.take(`,"task":`)
	r.task(b.Answer.Task)
	r.take(`}}`)
}
