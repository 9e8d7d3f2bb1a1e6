package client

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/api"
)

// WithServers adds further servers of the same center, as New takes one: each takes any request. A request goes to the one
// that answered last. If no connection to it can be made, the next one is tried, each once. A request that is safe to repeat
// goes to the next one also after a lost answer, after 5 s without one, and after a 502, 503 or 504. Reads are safe, and so are
// extensions of leases, and submits that have a DedupKey and Keep the first task. (Duplicate may then be true although the task
// is from this call.) If the caller's time ends first, the next request goes to the next server.
func WithServers(baseURLs ...string) Option {
	return func(c *Client) {
		for _, u := range baseURLs {
			c.servers = append(c.servers, baseOf(u))
		}
	}
}

func baseOf(url string) string {
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	return strings.TrimRight(url, "/")
}

// tryTime bounds a try of a request that another server may take.
const tryTime = 5 * time.Second

// each makes a request of one server after the other, until one takes it.
func (c *Client) each(ctx context.Context, repeatable bool,
	try func(ctx context.Context, base string) (status int, err error)) (status int, err error) {
	list, err := c.candidates(ctx)
	if err != nil {
		return 0, err
	}
	status, goes, err := c.tryAll(ctx, list, repeatable, try)
	if !goes || c.consul == nil {
		return status, err
	}
	fresh, asked := c.consul.refresh(ctx, c)
	fresh = slices.DeleteFunc(slices.Clone(fresh), func(base string) bool { return slices.Contains(list, base) })
	if asked != nil || len(fresh) == 0 {
		return status, err
	}
	status, _, err = c.tryAll(ctx, fresh, repeatable, try)
	return status, err
}

// candidates lists the servers, the one that answered last at the front.
func (c *Client) candidates(ctx context.Context) ([]string, error) {
	list := c.servers
	if c.consul != nil {
		found, err := c.consul.servers(ctx, c)
		if err != nil && len(list) == 0 {
			return nil, err
		}
		list = slices.Concat(found, list)
	}
	current := c.current.Load()
	if current == nil {
		return list, nil
	}
	at := max(0, slices.Index(list, *current))
	return slices.Concat(list[at:], list[:at]), nil
}

// hasOthers reports whether there may be another server.
func (c *Client) hasOthers() bool { return c.consul != nil || len(c.servers) > 1 }

// tryAll makes a request of one server of a list after the other. goes: another server may do better.
func (c *Client) tryAll(ctx context.Context, list []string, repeatable bool,
	try func(context.Context, string) (int, error)) (status int, goes bool, err error) {
	first := c.current.Load()
	for i, base := range list {
		last := i == len(list)-1
		status, err = c.one(ctx, base, repeatable && !last, try)
		if goes = ctx.Err() == nil && goesOn(err, repeatable); !goes {
			current := base
			if repeatable && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				current = list[(i+1)%len(list)] // for the next request: this server may be silent
			} else if err != nil {
				break
			}
			if first == nil || *first != current {
				c.current.CompareAndSwap(first, &current)
			}
			break
		}
	}
	return status, goes, err
}

func (c *Client) one(ctx context.Context, base string, bounded bool, try func(ctx context.Context, base string) (int, error)) (int, error) {
	if bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, tryTime)
		defer cancel()
	}
	return try(ctx, base)
}

// goesOn reports whether another server may do better.
func goesOn(err error, repeatable bool) bool {
	if err == nil {
		return false
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return true // nothing was sent
	}
	if refused, ok := errors.AsType[*Error](err); ok {
		switch refused.Status {
		case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return repeatable
		}
		return false
	}
	return repeatable
}

// isRepeatable reports whether a request may reach the center twice without harm.
func isRepeatable(method string, body any) bool {
	switch b := body.(type) {
	case api.BatchRequest:
		for i := range b.Tasks {
			if !hasKey(&b.Tasks[i]) {
				return false
			}
		}
		return true
	case api.SettleRequest:
		return !slices.ContainsFunc(b.Settle, func(s api.Settlement) bool { return s.Do != Extend })
	}
	return method == http.MethodGet
}

// hasKey reports whether a submit makes no second task. One that moves the first task, by a delay say, is not repeated.
func hasKey(s *api.SubmitRequest) bool {
	return s.DedupKey != "" && (s.OnDuplicate == "" || s.OnDuplicate == "keep")
}
