package httpapi

import (
	"fmt"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/taskjson"
)

// submitRequest asks for one task.
type submitRequest struct {
	_          struct{} `additionalProperties:"false"`
	BizType    text     `json:"biz_type" doc:"Name of a configured business type." example:"order_close"`
	BizID      bizID    `json:"biz_id" doc:"The business's own id, like an order's: an unsigned 64-bit number, as a string or a number, or any other text of up to 128 bytes, like a UUID. Tasks of one biz_id lie in one table." example:"\"42\""`
	ActionTime moment   `json:"action_time,omitempty" doc:"When to fire, RFC 3339; rounded up to a millisecond. At most 5 s ago and 10 years ahead. Give either this or delay." example:"2026-01-02T15:04:05Z"`
	Delay      span     `json:"delay,omitempty" doc:"When to fire, counted from now: a Go duration of 0s or more. Give either this or action_time." example:"30m"`
	Attribute  text     `json:"attribute,omitempty" maxLength:"4096" doc:"Handed to the processor as it is. At most 4096 bytes of UTF-8." example:"{\"shop\":7}"`
	DedupKey   text     `json:"dedup_key,omitempty" maxLength:"64" doc:"Makes the submit safe to repeat: the first task of the same biz_type, biz_id and dedup_key is answered, unchanged. At most 64 bytes of UTF-8." example:"order-42-unpaid"`
	Timeout    timeout  `json:"timeout,omitempty" doc:"How long one run may take, instead of its business type's timeout: a Go duration of 1ms to 24h, rounded up to a millisecond." example:"1.5s"`

	OnDuplicate onDuplicate `json:"on_duplicate,omitempty" enum:"keep,move" doc:"What becomes of the first task if the dedup_key is known: keep (as it is; the default) or move (it gets this action_time, attribute and, where given, timeout; refused with 409 unless it is pending)." example:"move"`
}

func (r *submitRequest) field(name []byte) field {
	switch string(name) {
	case "biz_type":
		return &r.BizType
	case "biz_id":
		return &r.BizID
	case "action_time":
		return &r.ActionTime
	case "delay":
		return &r.Delay
	case "attribute":
		return &r.Attribute
	case "dedup_key":
		return &r.DedupKey
	case "timeout":
		return &r.Timeout
	case "on_duplicate":
		return &r.OnDuplicate
	}
	return nil
}

func (r *submitRequest) missing() (faults []fault) {
	if !r.BizType.given {
		faults = append(faults, fault{"biz_type", "is missing; give the name of a configured biz_type"})
	}
	if !r.BizID.given {
		faults = append(faults, fault{"biz_id", "is missing; give the business's own id"})
	}
	if !r.ActionTime.given && !r.Delay.given {
		faults = append(faults, fault{"action_time", "is missing; give action_time (RFC 3339) or delay (like 30m)"})
	}
	if r.OnDuplicate.given && !r.DedupKey.given {
		faults = append(faults, fault{"on_duplicate", "needs a dedup_key; without one there are no duplicates"})
	}
	return append(faults, bothTimes(&r.ActionTime, &r.Delay)...)
}

func (r *submitRequest) submit() intake.Submit {
	return intake.Submit{
		BizType: r.BizType.value, BizID: r.BizID.value.Number, BizKey: r.BizID.value.Key, When: when(&r.ActionTime, &r.Delay),
		Attribute: r.Attribute.value, DedupKey: r.DedupKey.value, Timeout: r.Timeout.value,
		OnDuplicate: intake.OnDuplicate(r.OnDuplicate.value),
	}
}

func bothTimes(at *moment, in *span) []fault {
	if !at.given || !in.given {
		return nil
	}
	const message = "give either action_time or delay, not both"
	return []fault{{"action_time", message}, {"delay", message}}
}

func when(at *moment, in *span) intake.When {
	if at.given {
		return intake.At(at.value)
	}
	return intake.In(in.value)
}

// batchRequest asks for many tasks.
type batchRequest struct {
	_     struct{} `additionalProperties:"false"`
	Tasks batch    `json:"tasks" minItems:"1" maxItems:"10000" doc:"The tasks, each like the body of POST /v1/tasks."`
}

func (r *batchRequest) field(name []byte) field {
	if string(name) == "tasks" {
		return &r.Tasks
	}
	return nil
}

func (r *batchRequest) missing() []fault {
	if !r.Tasks.given {
		return []fault{{"tasks", "is missing; give the tasks to submit"}}
	}
	return nil
}

// batch reads its tasks one by one, so that a bad one does not spoil the rest.
type batch struct {
	given
	items []batchItem
}

// batchItem is a task of a batch, or its first fault.
type batchItem struct {
	submit intake.Submit
	fault  *fault
}

func (b *batch) read(value []byte) error {
	if value[0] != '[' {
		return fmt.Errorf("must be an array, not %s", kindOf(value))
	}
	for item := range elements(value) {
		if len(b.items) == intake.MaxBatch {
			return fmt.Errorf("holds more than %d tasks; send several batches", intake.MaxBatch)
		}
		var r submitRequest
		if faults := fill(&r, item); len(faults) > 0 {
			b.items = append(b.items, batchItem{fault: &faults[0]})
			continue
		}
		b.items = append(b.items, batchItem{submit: r.submit()})
	}
	if len(b.items) == 0 {
		return fmt.Errorf("is empty; give 1 to %d tasks", intake.MaxBatch)
	}
	return nil
}

func (batch) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeArray, Items: r.Schema(reflect.TypeFor[submitRequest](), true, "")}
}

// changeRequest asks for another time, another attribute, another time-out, or several of them.
type changeRequest struct {
	_          struct{} `additionalProperties:"false"`
	ActionTime moment   `json:"action_time,omitempty" doc:"When to fire, RFC 3339. Give either this or delay." example:"2026-01-02T16:00:00Z"`
	Delay      span     `json:"delay,omitempty" doc:"When to fire, counted from now: a Go duration. Give either this or action_time." example:"45m"`
	Attribute  text     `json:"attribute,omitempty" maxLength:"4096" doc:"Replaces the attribute. At most 4096 bytes of UTF-8." example:"{\"shop\":8}"`
	Timeout    timeout  `json:"timeout,omitempty" doc:"How long one run may take: a Go duration of 1ms to 24h." example:"1.5s"`
}

func (r *changeRequest) field(name []byte) field {
	switch string(name) {
	case "action_time":
		return &r.ActionTime
	case "delay":
		return &r.Delay
	case "attribute":
		return &r.Attribute
	case "timeout":
		return &r.Timeout
	}
	return nil
}

func (r *changeRequest) missing() []fault {
	if !r.ActionTime.given && !r.Delay.given && !r.Attribute.given && !r.Timeout.given {
		return []fault{{"action_time", "nothing to change; give action_time or delay, attribute, or timeout"}}
	}
	return bothTimes(&r.ActionTime, &r.Delay)
}

func (r *changeRequest) change(ifMatch []string) intake.Change {
	c := intake.Change{IfMatch: ifMatch}
	if r.ActionTime.given || r.Delay.given {
		w := when(&r.ActionTime, &r.Delay)
		c.When = &w
	}
	if r.Attribute.given {
		c.Attribute = &r.Attribute.value
	}
	if r.Timeout.given {
		c.Timeout = &r.Timeout.value
	}
	return c
}

// redriveRequest asks to redrive dead tasks.
type redriveRequest struct {
	_       struct{} `additionalProperties:"false"`
	BizType text     `json:"biz_type,omitempty" doc:"Only tasks of this business type. Left out: of all." example:"order_close"`
	Limit   count    `json:"limit,omitempty" doc:"At most this many. Left out: all that match." example:"100"`
	DryRun  flag     `json:"dry_run,omitempty" doc:"Count only, change nothing." example:"true"`
}

func (r *redriveRequest) field(name []byte) field {
	switch string(name) {
	case "biz_type":
		return &r.BizType
	case "limit":
		return &r.Limit
	case "dry_run":
		return &r.DryRun
	}
	return nil
}

// missing refuses an empty biz_type: it comes from a variable that is not set,
// and must not redrive everything.
func (r *redriveRequest) missing() []fault {
	if r.BizType.given && r.BizType.value == "" {
		return []fault{{"biz_type", "is empty; leave it out to redrive all"}}
	}
	return nil
}

// wakeRequest names tasks that are due soon.
type wakeRequest struct {
	_      struct{} `additionalProperties:"false"`
	JobIDs ids      `json:"job_ids" minItems:"1" maxItems:"1000" doc:"The tasks' ids."`
}

func (r *wakeRequest) field(name []byte) field {
	if string(name) == "job_ids" {
		return &r.JobIDs
	}
	return nil
}

func (r *wakeRequest) missing() []fault {
	if !r.JobIDs.given {
		return []fault{{"job_ids", "is missing; give the ids of the tasks"}}
	}
	return nil
}

// ids is an array of 1 to intake.MaxWake ids.
type ids struct {
	given
	list []uint64
}

func (l *ids) read(value []byte) error {
	if value[0] != '[' {
		return fmt.Errorf("must be an array, not %s", kindOf(value))
	}
	for item := range elements(value) {
		if len(l.list) == intake.MaxWake {
			return fmt.Errorf("holds more than %d ids; send several requests", intake.MaxWake)
		}
		var one taskjson.ID
		if err := one.UnmarshalJSON(item); err != nil {
			return fmt.Errorf("at place %d: %w", len(l.list), err)
		}
		l.list = append(l.list, uint64(one))
	}
	if len(l.list) == 0 {
		return fmt.Errorf("is empty; give 1 to %d ids", intake.MaxWake)
	}
	return nil
}

func (ids) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{OneOf: []*huma.Schema{idParam{}.Schema(r), idNumberSchema()}}}
}
