package api

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// LeaseRequest asks for tasks of a business type whose processor is pull.
type LeaseRequest struct {
	_    struct{}  `additionalProperties:"false"`
	Max  int       `json:"max,omitempty" minimum:"1" maximum:"256" default:"1" doc:"At most this many tasks, in digits only: 1.0 and 1e2 are refused." example:"10"`
	Wait *Duration `json:"wait,omitempty" doc:"How long to wait if no task is due: a Go duration of 0s to 60s. Left out: not at all." example:"30s"`
	TTR  *Duration `json:"ttr,omitempty" doc:"How long the caller has the tasks (time to run) that have no timeout of their own: a Go duration of 100ms to 24h. Left out: pull.ttr of the business type." example:"30s"`
	// Settle is what to do first.
	Settle []Settlement `json:"settle,omitempty" nullable:"false" minItems:"1" maxItems:"1000" doc:"Leases to settle, as POST /v1/leases/settle does. Then the request does not wait."`
}

// MayBeEmpty marks a body that may be left out.
func (LeaseRequest) MayBeEmpty() {}

// LeaseAnswer answers a LeaseRequest.
type LeaseAnswer struct {
	Tasks  []LeasedTask `json:"tasks" nullable:"false" doc:"The tasks, those that were due first at the front. Empty: none fell due in time."`
	Paused bool         `json:"paused" doc:"The business type is paused: it hands out no tasks."`
	// Results are those of LeaseRequest.Settle, in order.
	Results []Settled `json:"results,omitempty" nullable:"false" doc:"What became of settle, in order; left out without it."`
}

// LeasedTask is a task that its caller has for a while.
type LeasedTask struct {
	Lease     Lease `json:"lease" doc:"Names this hand-out of the task; settle it by this." example:"3bw1f0sk8b4-1y0gkz9d6v3p2"`
	ExpiresAt Time  `json:"expires_at" doc:"When the lease ends: settle or extend it before. RFC 3339." example:"2026-01-02T15:04:35.004Z"`
	Attempt   int   `json:"attempt" doc:"1 for the first hand-out." example:"1"`
	// Traceparent is that of the submit.
	Traceparent string `json:"traceparent,omitempty" doc:"The W3C trace context of the submit, if there is one: link the span of the run to it." example:"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"`
	Task        Task   `json:"task" doc:"The task. Its action_time is the time that was asked for, whatever pauses and leases have moved since."`
}

// AppendJSON appends t as JSON to dst; see Task.AppendJSON.
func (t LeasedTask) AppendJSON(dst []byte) []byte {
	dst = append(t.Lease.appendText(append(dst, `{"lease":"`...)), '"')
	dst = t.ExpiresAt.appendJSON(append(dst, `,"expires_at":`...))
	dst = strconv.AppendInt(append(dst, `,"attempt":`...), int64(t.Attempt), 10)
	if t.Traceparent != "" {
		dst = appendString(append(dst, `,"traceparent":`...), t.Traceparent)
	}
	return append(t.Task.AppendJSON(append(dst, `,"task":`...)), '}')
}

// AppendJSON appends a as JSON to dst; see Task.AppendJSON.
func (a LeaseAnswer) AppendJSON(dst []byte) []byte {
	dst = append(slices.Grow(dst, len(a.Tasks)*(frame+150)), `{"tasks":[`...)
	for i := range a.Tasks {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = a.Tasks[i].AppendJSON(dst)
	}
	dst = strconv.AppendBool(append(dst, `],"paused":`...), a.Paused)
	if len(a.Results) > 0 {
		dst = appendSettled(append(dst, ','), a.Results)
	}
	return append(dst, '}')
}

// AppendJSON appends a as JSON to dst; see Task.AppendJSON.
func (a SettleAnswer) AppendJSON(dst []byte) []byte {
	return append(appendSettled(append(dst, '{'), a.Results), '}')
}

// appendSettled appends the field of an answer that has the results of settlements.
func appendSettled(dst []byte, results []Settled) []byte {
	dst = append(dst, `"results":[`...)
	for i, r := range results {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(append(dst, `{"lease":`...), r.Lease)
		dst = append(appendString(append(dst, `,"result":`...), r.Result), '}')
	}
	return append(dst, ']')
}

// Lease names a hand-out of a task to a consumer. Its text is opaque to consumers.
type Lease struct {
	JobID  ID
	Number uint64 // in the column lease
}

// leaseBase is the base of the numbers in the text.
const leaseBase = 36

// ParseLease reads the text of a lease.
func ParseLease(s string) (l Lease, err error) {
	job, number, two := strings.Cut(s, "-")
	id, err := strconv.ParseUint(job, leaseBase, 64)
	if err == nil {
		l.Number, err = strconv.ParseUint(number, leaseBase, 64)
	}
	l.JobID = ID(id)
	var space [maxLease]byte
	if err != nil || !two || l.Number == 0 || string(l.appendText(space[:0])) != s {
		return Lease{}, fmt.Errorf("%.64q is no lease; send back what came with the task", strings.Clone(s))
	}
	return l, nil
}

// maxLease is the length of the longest text of a lease.
const maxLease = 2*13 + 1

func (l Lease) appendText(dst []byte) []byte {
	return strconv.AppendUint(append(strconv.AppendUint(dst, uint64(l.JobID), leaseBase), '-'), l.Number, leaseBase)
}

// String gives the text of the lease.
func (l Lease) String() string {
	var space [maxLease]byte
	return string(l.appendText(space[:0]))
}

// MarshalText gives the text of the lease.
func (l Lease) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads the text of a lease.
func (l *Lease) UnmarshalText(text []byte) (err error) {
	*l, err = ParseLease(string(text))
	return err
}

// SettleRequest settles leases.
type SettleRequest struct {
	_      struct{}     `additionalProperties:"false"`
	Settle []Settlement `json:"settle" missing:"give the leases to settle" nullable:"false" minItems:"1" maxItems:"1000" doc:"What to do with which leases."`
}

// Settlement is what a consumer does with a lease.
type Settlement struct {
	_          struct{}  `additionalProperties:"false"`
	Lease      string    `json:"lease" minLength:"1" doc:"The lease, as it came with the task." example:"3bw1f0sk8b4-1y0gkz9d6v3p2"`
	Do         Do        `json:"do" missing:"give ack, nack, extend, reject or release" enum:"ack,nack,extend,reject,release" doc:"ack: the task is processed. nack: the run has failed; the task is tried again, or dead after max_retries. extend: the lease ends ttr from now. reject: the task is cancelled. release: nobody has begun it; it is due again at once, and this was no attempt." example:"ack"`
	RetryAfter *Duration `json:"retry_after,omitempty" doc:"Of nack: when to try again, from now: a Go duration of 0s or more. Left out: the back-off of the business type." example:"10s"`
	TTR        Duration  `json:"ttr,omitzero" doc:"Of extend: a Go duration of 100ms to 24h. Left out: the task's timeout, or else pull.ttr of the business type." example:"30s"`
	Error      string    `json:"error,omitempty" doc:"Of nack and reject: why; kept as last_error, cut to 255 bytes." example:"order 42 is locked"`
}

// Do is what a consumer does with a lease: ack, nack, extend, reject or release.
type Do string

// Dos are all of them.
var Dos = []Do{"ack", "nack", "extend", "reject", "release"}

// SettleAnswer answers a SettleRequest: one result for each settlement, in order.
type SettleAnswer struct {
	Results []Settled `json:"results" nullable:"false"`
}

// Settled is what became of a settlement.
type Settled struct {
	Lease  string `json:"lease" doc:"The lease, as it was sent." example:"3bw1f0sk8b4-1y0gkz9d6v3p2"`
	Result string `json:"result" enum:"ok,lost,invalid,unavailable" doc:"ok: done. lost: the lease is over or was settled before; nothing was changed. invalid: this is no lease. unavailable: it cannot be decided now; send it again." example:"ok"`
}

// The results of settlements.
const (
	SettledOK          = "ok"
	SettledLost        = "lost"
	SettledInvalid     = "invalid"
	SettledUnavailable = "unavailable"
)
