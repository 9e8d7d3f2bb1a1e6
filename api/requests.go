package api

import (
	"time"

	"github.com/timeoutcenter/toc/queue/limits"
)

// The headers of a request that another node has forwarded. Its value marks it, so that it is not forwarded again: the name of that node,
// escaped. A question for leases has a number, too. In the form of http.Header's keys.
const (
	HeaderForwarded = "Toc-Forwarded"
	HeaderQuestion  = "Toc-Question"
)

// SubmitRequest asks for one task.
type SubmitRequest struct {
	_          struct{}   `additionalProperties:"false"`
	BizType    string     `json:"biz_type" missing:"give the name of a configured biz_type" minLength:"1" doc:"Name of a configured business type." example:"order_close"`
	BizID      BizID      `json:"biz_id" missing:"give the business's own id" minLength:"1" maxLength:"128" doc:"The business's own id, like an order's: an unsigned 64-bit number, as a string or a number, or any other text of up to 128 bytes, like a UUID. Tasks of one biz_id lie in one table." example:"42"`
	ActionTime *time.Time `json:"action_time,omitempty" doc:"When to fire, RFC 3339; rounded up to a millisecond. At most 5 s ago, unless past is fire, and 10 years ahead. Give either this or delay." example:"2030-01-02T15:04:05Z"`
	Delay      *Duration  `json:"delay,omitempty" doc:"When to fire, counted from now: a Go duration of 0s or more. Give either this or action_time." example:"30m"`
	Attribute  string     `json:"attribute,omitempty" maxLength:"4096" doc:"Handed to the processor as it is. At most 4096 bytes of UTF-8." example:"{\"shop\":7}"`
	DedupKey   string     `json:"dedup_key,omitempty" maxLength:"64" doc:"Makes the submit safe to repeat: the first task of the same biz_type, biz_id and dedup_key is answered, unchanged. At most 64 bytes of UTF-8." example:"order-42-unpaid"`
	Timeout    Duration   `json:"timeout,omitzero" doc:"How long one run may take, instead of its business type's timeout: a Go duration of 1ms to 24h, rounded up to a millisecond." example:"1.5s"`

	OnDuplicate OnDuplicate `json:"on_duplicate,omitempty" enum:"keep,move,again" dependentRequired:"dedup_key" doc:"What becomes of the first task if the dedup_key is known: keep (as it is; the default), move (it gets this action_time, attribute and, where given, timeout; refused with 409 unless it is pending) or again (as keep while it is pending; if it is processed, cancelled or dead, a new task gets the dedup_key)." example:"move"`
	Past        Past        `json:"past,omitempty" enum:"fire,refuse" doc:"What becomes of an action_time more than 5 s ago: refuse (422; the default) or fire (the task is due at once, and was promised for that time)." example:"fire"`
}

// OnDuplicate says what a submit does if a task has its dedup_key already: keep, move or again.
type OnDuplicate string

// Past says what becomes of an action_time that has passed: fire or refuse.
type Past string

// BatchRequest asks for many tasks.
type BatchRequest struct {
	_     struct{}        `additionalProperties:"false"`
	Tasks []SubmitRequest `json:"tasks" nullable:"false" minItems:"1" maxItems:"10000" doc:"The tasks, each like the body of POST /v1/tasks."`
	Full  bool            `json:"full,omitempty" doc:"Take each task as a submit of its own, of at most 1000, and answer it as POST /v1/tasks would." example:"true"`
}

// ChangeRequest asks for another time, another attribute, another time-out, or several of them.
type ChangeRequest struct {
	_          struct{}   `additionalProperties:"false"`
	ActionTime *time.Time `json:"action_time,omitempty" doc:"When to fire, RFC 3339. Give either this or delay." example:"2030-01-02T16:00:00Z"`
	Delay      *Duration  `json:"delay,omitempty" doc:"When to fire, counted from now: a Go duration. Give either this or action_time." example:"45m"`
	Attribute  *string    `json:"attribute,omitempty" maxLength:"4096" doc:"Replaces the attribute. At most 4096 bytes of UTF-8." example:"{\"shop\":8}"`
	Timeout    Duration   `json:"timeout,omitzero" doc:"How long one run may take: a Go duration of 1ms to 24h." example:"1.5s"`
	Past       Past       `json:"past,omitempty" enum:"fire,refuse" doc:"What becomes of an action_time more than 5 s ago, as in a submit." example:"fire"`
}

// DeadRequest asks to redrive or to discard the dead tasks that match.
type DeadRequest struct {
	_       struct{}   `additionalProperties:"false"`
	BizType string     `json:"biz_type,omitempty" minLength:"1" doc:"Only tasks of this business type. Left out: of all." example:"order_close"`
	Error   string     `json:"error,omitempty" minLength:"1" doc:"Only tasks whose last_error has this part, upper and lower case as it stands." example:"is locked"`
	Since   *time.Time `json:"since,omitempty" doc:"Only tasks that died (gmt_modified) at this time or later, RFC 3339." example:"2026-01-02T15:00:00Z"`
	Until   *time.Time `json:"until,omitempty" doc:"Only tasks that died before this time, RFC 3339." example:"2026-01-02T16:00:00Z"`
	Limit   int        `json:"limit,omitempty" minimum:"1" doc:"At most this many, in digits only: 1.0 and 1e2 are refused. Left out: all that match." example:"100"`
	DryRun  bool       `json:"dry_run,omitempty" doc:"Count only, change nothing." example:"true"`
	Rate    float64    `json:"rate,omitempty" minimum:"0.01" maximum:"100000" doc:"Starts an operation that changes so many tasks a second. Left out: all are changed before the answer." example:"50"`
}

// Which is what selects the tasks of r.
func (r *DeadRequest) Which() ListDead {
	return ListDead{BizType: r.BizType, Error: r.Error, Since: timeOf(r.Since), Until: timeOf(r.Until)}
}

// Request asks to change the dead tasks that q selects, at most Limit.
func (q ListDead) Request() DeadRequest {
	return DeadRequest{BizType: q.BizType, Error: q.Error, Limit: q.Limit, Since: orNil(q.Since), Until: orNil(q.Until)}
}

// PauseRequest asks to pause a business type.
type PauseRequest struct {
	_      struct{}   `additionalProperties:"false"`
	Reason string     `json:"reason,omitempty" maxLength:"255" doc:"Shown to whoever asks why its tasks wait. At most 255 characters." example:"the shop is down"`
	Until  *time.Time `json:"until,omitempty" doc:"When the pause ends by itself, RFC 3339, at most 10 years ahead. Left out: it does not." example:"2030-01-02T18:00:00Z"`
}

// MayBeEmpty marks a body that may be left out.
func (PauseRequest) MayBeEmpty() {}

// RetryRequest asks to run the failing tasks of a business type now.
type RetryRequest struct {
	_    struct{} `additionalProperties:"false"`
	Rate float64  `json:"rate,omitempty" minimum:"0.01" maximum:"100000" doc:"Starts an operation that retries so many tasks a second. Left out: as fast as it goes." example:"50"`
}

// MayBeEmpty marks a body that may be left out.
func (RetryRequest) MayBeEmpty() {}

// ExchangeRequest asks another node how it is, and for what it does not use of the limits of business types.
type ExchangeRequest struct {
	_      struct{}     `additionalProperties:"false"`
	From   string       `json:"from" minLength:"1" maxLength:"512" doc:"The process that asks; another one after each start." example:"node-2 5YX3QZ"`
	Seq    int          `json:"seq" missing:"give a number that grows with each request" minimum:"1" doc:"Grows with each request of the process that has asks. One that is late is ignored."`
	Asks   []limits.Ask `json:"asks,omitempty" nullable:"false" maxItems:"1000" doc:"What the tasks of the asking node wait for."`
	Detail bool         `json:"detail,omitempty" doc:"Asks for biz_types and pulse, too."`
}

// WakeRequest names tasks that are due soon.
type WakeRequest struct {
	_      struct{} `additionalProperties:"false"`
	JobIDs []ID     `json:"job_ids" missing:"give the ids of the tasks" nullable:"false" minItems:"1" maxItems:"1000" doc:"The tasks' ids."`
}
