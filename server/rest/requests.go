package rest

import (
	"fmt"

	"github.com/timeoutcenter/toc/api"
)

// missing returns a fault for each field that was not given but is needed, and for fields that were given against a rule.
func missing(body any, given names) (faults []fault) {
	add := func(field, message string) { faults = append(faults, fault{field, message}) }
	switch body := body.(type) {
	case *api.SubmitRequest:
		if !given.has("biz_type") {
			add("biz_type", "is missing; give the name of a configured biz_type")
		}
		if !given.has("biz_id") {
			add("biz_id", "is missing; give the business's own id")
		}
		if !given.has("action_time") && !given.has("delay") {
			add("action_time", "is missing; give action_time (RFC 3339) or delay (like 30m)")
		}
		if given.has("on_duplicate") && !given.has("dedup_key") {
			add("on_duplicate", "needs a dedup_key; without one there are no duplicates")
		}
	case *api.ChangeRequest:
		if !given.has("action_time") && !given.has("delay") && !given.has("attribute") && !given.has("timeout") {
			add("action_time", "nothing to change; give action_time or delay, attribute, or timeout")
		}
	case *api.DeadRequest: // an empty biz_type comes from a variable that is not set, and must not mean everything
		if given.has("biz_type") && body.BizType == "" {
			add("biz_type", "is empty; leave it out for all")
		}
		if given.has("error") && body.Error == "" {
			add("error", "is empty; leave it out for all")
		}
	case *batch:
		if !given.has("tasks") {
			add("tasks", "is missing; give the tasks to submit")
		}
	case *api.LimitsRequest:
		if !given.has("from") || body.From == "" || len(body.From) > maxFrom {
			add("from", fmt.Sprintf("is missing, or longer than %d bytes; give the name of the process that asks", maxFrom))
		}
		if !given.has("seq") {
			add("seq", "is missing; give a number that grows with each request")
		}
		if !given.has("asks") {
			add("asks", "is missing; give what to ask for")
		}
	case *api.Settlement:
		if body.Lease == "" {
			add("lease", "is missing; give the lease as it came with the task")
		}
		if !given.has("do") {
			add("do", "is missing; give ack, nack, extend, reject or release")
		}
	case *api.SettleRequest:
		if !given.has("settle") {
			add("settle", "is missing; give the leases to settle")
		}
	case *api.WakeRequest:
		if !given.has("job_ids") {
			add("job_ids", "is missing; give the ids of the tasks")
		}
	}
	if given.has("action_time") && given.has("delay") {
		const message = "give either action_time or delay, not both"
		add("action_time", message)
		add("delay", message)
	}
	return faults
}

// maxFrom is the greatest length of a node's name here, in bytes.
const maxFrom = 512

// batch is a api.BatchRequest as it is read: task by task, so that a bad one does not spoil the rest.
type batch struct {
	Tasks []batchItem `json:"tasks"`
}

// batchItem is a task of a batch, or its first fault.
type batchItem struct {
	submit api.Submit
	fault  *fault
}

func (b *batchItem) read(value []byte) error {
	var r api.SubmitRequest
	if faults := fill(&r, value); len(faults) > 0 {
		b.fault = &faults[0]
		return nil
	}
	b.submit = r.Submit()
	return nil
}
