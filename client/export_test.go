package client

import (
	"context"
	"encoding/json"
)

// SubmitTogether sends submits as those of concurrent callers, in one request.
func (c *Client) SubmitTogether(ctx context.Context, list ...Submit) (answers []Submitted, errs []error) {
	sent := make([]*gathered, len(list))
	for i, s := range list {
		body, err := s.Request()
		if err != nil {
			panic(err)
		}
		text, err := json.Marshal(body)
		if err != nil {
			panic(err)
		}
		sent[i] = &gathered{ctx: ctx, text: text, isSafe: hasKey(&body), answered: make(chan struct{})}
	}
	newGatherer(c).flush(sent)
	for _, s := range sent {
		<-s.answered
		answers, errs = append(answers, Submitted{Task: s.task, Duplicate: s.status == 200}), append(errs, s.err)
	}
	return answers, errs
}
