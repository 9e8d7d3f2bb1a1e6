package kafka

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/internal/tracing"
	"github.com/timeoutcenter/toc/task"
)

// The headers that are read.
const (
	headerBizType    = "toc-biz-type"    // with it, the value is the attribute; without it, the value is a body of POST /v1/tasks
	headerBizID      = "toc-biz-id"      // a number or a text; without it the key of the record
	headerActionTime = "toc-action-time" // RFC 3339, or Unix milliseconds
	headerEpoch      = "scheduler-epoch" // Unix seconds: what other schedulers on Kafka call the action time
	// And tracing.Header.
)

// request is what a record asks for: a submit, or the cancel of the task that has its key.
type request struct {
	submit api.Submit // its time is an absolute one
	at     time.Time
	cancel bool
}

// key is the task that a request is about. Requests of one key apply in the order of their offsets.
func (r *request) key() api.Key {
	return api.Key{BizType: r.submit.BizType, BizID: r.submit.BizID, BizKey: r.submit.BizKey, DedupKey: r.submit.DedupKey}
}

// topicID is the id of a topic, or stands for it if the brokers have no ids.
type topicID [16]byte

// topicIDs stores the id of a topic. The zero value has none.
type topicIDs struct{ last topicID }

// of returns the id in a fetch, or the last one that was seen: a fetch that failed has none, nor does one that the client has made
// without ids. Only where none was ever seen the names stand for it.
func (ids *topicIDs) of(t kgo.FetchTopic, cluster string) (id topicID) {
	if t.TopicID != (topicID{}) {
		ids.last = t.TopicID
	}
	if id = ids.last; id == (topicID{}) {
		sum := sha256.Sum256([]byte(cluster + "/" + t.Topic))
		copy(id[:], sum[:])
	}
	return id
}

// parse reads a record, or returns a task.FieldError.
func parse(r *kgo.Record, topic topicID, readBody func([]byte) (api.Submit, error)) (request, error) {
	headers := make(map[string]string, len(r.Headers))
	for _, h := range r.Headers {
		headers[h.Key] = string(h.Value)
	}
	var q request
	var err error
	if bizType, ok := headers[headerBizType]; ok {
		q, err = fromHeaders(r, bizType, headers)
	} else {
		q, err = fromBody(r, readBody)
	}
	q.submit.Trace = headers[tracing.Header]
	if err != nil || q.submit.DedupKey != "" {
		return q, err
	}
	if len(r.Key) > 0 {
		q.submit.DedupKey, q.submit.OnDuplicate = string(r.Key), api.Move
	} else {
		// The id of the topic, because offsets start again in a topic that was deleted and made again.
		q.submit.DedupKey = fmt.Sprintf("k:%s:%d:%d", base64.RawURLEncoding.EncodeToString(topic[:]), r.Partition, r.Offset)
	}
	return q, nil
}

func fromBody(r *kgo.Record, readBody func([]byte) (api.Submit, error)) (q request, err error) {
	if r.Value == nil {
		return q, task.Wrong(headerBizType, "is missing; a null value cancels the task that has the record's key, and needs toc-biz-type and toc-biz-id to find it")
	}
	if q.submit, err = readBody(r.Value); err != nil {
		return q, err
	}
	at := q.submit.ActionTime
	if d := q.submit.Delay; at.IsZero() {
		if d < 0 {
			return q, task.Wrong("delay", "%s is negative; give a delay from the record's timestamp, 0s or more", d)
		}
		at = r.Timestamp.Add(d) // so that it means the same whenever it is read
	}
	q.at = at
	return q, nil
}

func fromHeaders(r *kgo.Record, bizType string, headers map[string]string) (q request, err error) {
	q = request{cancel: r.Value == nil, submit: api.Submit{BizType: bizType, Attribute: string(r.Value)}}
	id, ok := headers[headerBizID]
	if !ok {
		id = string(r.Key)
	}
	if id == "" {
		return q, task.Wrong(headerBizID, "is missing, and the record has no key that could stand for it")
	}
	if q.submit.BizID, q.submit.BizKey, err = task.ParseBizID(id); err != nil {
		return q, err
	}
	if q.cancel {
		if len(r.Key) == 0 {
			return q, task.Wrong("key", "is missing; a null value cancels the task that has the record's key")
		}
		return q, nil
	}
	q.at, err = actionTime(headers)
	return q, err
}

func actionTime(headers map[string]string) (time.Time, error) {
	if text, ok := headers[headerActionTime]; ok {
		if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
			return time.UnixMilli(ms), nil
		}
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return at, task.Wrong(headerActionTime, "%.40q is neither an RFC 3339 time nor Unix milliseconds", text)
		}
		return at, nil
	}
	if text, ok := headers[headerEpoch]; ok {
		s, err := strconv.ParseInt(text, 10, 64)
		if err != nil || s > math.MaxInt64/1000 || s < math.MinInt64/1000 {
			return time.Time{}, task.Wrong(headerEpoch, "%.40q is not a time in Unix seconds", text)
		}
		return time.Unix(s, 0), nil
	}
	return time.Time{}, task.Wrong(headerActionTime, "is missing; give an RFC 3339 time or Unix milliseconds")
}

// The headers that a refused record gets in the failure topic, beside its own.
const (
	headerErrorField = "toc-error-field"
	headerError      = "toc-error"
	headerTopic      = "toc-topic" // where it came from
	headerPartition  = "toc-partition"
	headerOffset     = "toc-offset"
	headerSize       = "toc-value-size" // of a value that was too large for the failure topic
	headerSum        = "toc-value-sha256"
)

// failure is the record of the failure topic.
func failure(r *kgo.Record, topic string, refusal error) *kgo.Record {
	field, message := "dedup_key", refusal.Error() // the key's task is in a state that does not allow it
	if wrong, is := errors.AsType[*task.FieldError](refusal); is {
		field, message = wrong.Field, wrong.Message
	}
	headers := withHeaders(r.Headers, headerErrorField, field, headerError, message, headerTopic, r.Topic,
		headerPartition, strconv.Itoa(int(r.Partition)), headerOffset, strconv.FormatInt(r.Offset, 10))
	return &kgo.Record{Topic: topic, Key: r.Key, Value: r.Value, Headers: headers, Timestamp: r.Timestamp}
}

// withHeaders adds names and values, which take turns, to a copy of headers.
func withHeaders(headers []kgo.RecordHeader, namesAndValues ...string) []kgo.RecordHeader {
	headers = slices.Clone(headers)
	for pair := range slices.Chunk(namesAndValues, 2) {
		headers = append(headers, kgo.RecordHeader{Key: pair[0], Value: []byte(pair[1])})
	}
	return headers
}

// withoutValue is a record of the failure topic that is too large for it: it has its place, and the size and the SHA-256 of the
// value, but no value and nothing else of the sender's own.
func withoutValue(r, whole *kgo.Record) *kgo.Record {
	sum := sha256.Sum256(r.Value)
	headers := withHeaders(whole.Headers[len(r.Headers):], headerSize, strconv.Itoa(len(r.Value)), headerSum, hex.EncodeToString(sum[:]))
	key := r.Key
	if len(key) > maxKey {
		key = nil
	}
	return &kgo.Record{Topic: whole.Topic, Key: key, Headers: headers, Timestamp: r.Timestamp}
}

// maxKey is the length of a key that is kept in any case, in bytes.
const maxKey = 1 << 10
