package rest

import (
	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/timeoutcenter/toc/api"
)

// Condition is embedded by the input of a route that changes a task, on request
// only if it is in a state that the caller has seen. huma calls Resolve before the
// handler.
type Condition struct {
	IfMatch string `header:"If-Match" doc:"Change the task only if it is still in one of these states: ETags as they were answered, or *." example:"\"ys2jcA5Gxu2UQyFi\""`
	tags    []string
}

// Resolve reads the header If-Match, which may come in several lines.
func (c *Condition) Resolve(ctx huma.Context) []error {
	r, _ := humago.Unwrap(ctx)
	lines, given := r.Header["If-Match"]
	if !given {
		return nil
	}
	var err error
	if c.tags, err = api.ParseIfMatch(lines); err != nil {
		return []error{located("header", "If-Match", err.Error())}
	}
	return nil
}
