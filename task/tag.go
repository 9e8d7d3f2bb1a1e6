package task

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"time"
)

// MatchAny is a tag that every task matches.
const MatchAny = "*"

// Tag names the task as it stands: 16 characters of base64url, made of all columns but lease, which never changes
// alone. Any change makes another tag,
// also one by SQL that leaves gmt_modified as it was.
func (t *Task) Tag() string {
	var space [512]byte // most tasks fit
	b := space[:0]
	number := func(n uint64) { b = binary.AppendUvarint(b, n) }
	text := func(s string) {
		number(uint64(len(s)))
		b = append(b, s...)
	}
	moment := func(at time.Time) { b = binary.AppendVarint(b, at.UnixMilli()) }
	number(t.JobID)
	number(t.BizID)
	text(t.BizKey)
	number(t.BizType)
	number(uint64(t.Status))
	moment(t.ActionTime)
	moment(t.Promised())
	text(t.Attribute)
	number(uint64(t.Attempts))
	text(t.LastError)
	text(t.DedupKey)
	number(uint64(t.Timeout.Milliseconds()))
	moment(t.Created)
	moment(t.Modified)
	if t.Trace != "" { // the last one
		text(t.Trace)
	}
	sum := sha256.Sum256(b)
	var tag [16]byte
	base64.RawURLEncoding.Encode(tag[:], sum[:12])
	return string(tag[:])
}

// Matches reports whether one of tags is the task's, or MatchAny. It is true without tags.
func (t *Task) Matches(tags []string) bool {
	if len(tags) == 0 {
		return true
	}
	own := t.Tag()
	return slices.ContainsFunc(tags, func(tag string) bool { return tag == own || tag == MatchAny })
}
