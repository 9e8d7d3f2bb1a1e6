package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/timeoutcenter/toc/api"
)

// The shapes that consumers of pull types get and send, as package api declares them.
type (
	Leased       = api.LeaseAnswer // tasks that a consumer has for a while
	LeasedTask   = api.LeasedTask  // one of them
	LeaseID      = api.Lease       // names the hand-out of a task
	Settlement   = api.Settlement  // what a consumer does with a lease
	SettleResult = api.Settled     // what became of a settlement
)

// Values of Settlement.Do.
const (
	Ack    = "ack"    // the task is processed
	Nack   = "nack"   // the run has failed: the task is tried again, or dead after max_retries
	Extend = "extend" // the lease ends later
	Reject = "reject" // the task is cancelled
	// Release says that nobody has begun the task: it is due again at once, and this was no attempt.
	Release = "release"
)

// Values of SettleResult.Result.
const (
	SettledOK          = api.SettledOK
	SettledLost        = api.SettledLost        // the lease is over or was settled before: nothing was changed
	SettledInvalid     = api.SettledInvalid     // this is no lease
	SettledUnavailable = api.SettledUnavailable // it cannot be decided now: send it again
)

// Lease leases due tasks of a business type whose processor is pull. Without any it waits, and returns an empty list in
// the end. Each task must be settled before ExpiresAt; then it is handed out again, or dead after max_retries. ctx should
// allow for Wait: a caller that gives up earlier may have been given tasks that nobody works on until then.
func (c *Client) Lease(ctx context.Context, bizType string, q AskLease) (Leased, error) {
	var out Leased
	_, err := c.do(ctx, http.MethodPost, "/v1/biz-types/"+url.PathEscape(bizType)+"/lease",
		leaseRequest(q), &out)
	return out, err
}

func leaseRequest(q AskLease) api.LeaseRequest {
	r := api.LeaseRequest{Max: max(1, q.Max), Wait: (*api.Duration)(&q.Wait)}
	if q.TTR != 0 {
		r.TTR = (*api.Duration)(&q.TTR)
	}
	return r
}

// Settle settles up to 1,000 leases. The results are in the order of the list. After an error they are unknown: send
// the list again, and what is lost then may have been settled by the first request.
func (c *Client) Settle(ctx context.Context, list ...Settlement) ([]SettleResult, error) {
	var out api.SettleAnswer
	_, err := c.do(ctx, http.MethodPost, "/v1/leases/settle", api.SettleRequest{Settle: list}, &out)
	return out.Results, err
}
