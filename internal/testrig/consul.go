package testrig

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// SharedConsul is the shared Consul server as one test sees it: an address and a prefix for its keys and services.
type SharedConsul struct {
	addr, prefix string
}

// Consul gives the test the shared server, with a unique prefix. When the test ends, the services that have the
// prefix anywhere in their name or ID are deregistered, which ends the sessions bound to their checks, and the keys that
// begin with it are removed. The test fails when there is no server to be had.
func Consul(t testing.TB) *SharedConsul {
	t.Helper()
	needsServer(t)
	addr, err := ofThisProcess.consul.addr(t.Context())
	if err != nil {
		t.Fatalf("testrig: this test needs a Consul server: %v", err)
	}
	c := &SharedConsul{addr: addr, prefix: uniquePrefix()}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := c.removeAll(ctx); err != nil {
			t.Errorf("testrig: remove the services and keys of %s: %v", c.prefix, err)
		}
	})
	return c
}

// Addr is host:port of the HTTP API.
func (c *SharedConsul) Addr() string { return c.addr }

// Prefix begins every key that the test makes and stands in the name or ID of its services: "toc_k3m9x2pa_".
func (c *SharedConsul) Prefix() string { return c.prefix }

// removeAll removes the services first: else a holder of a lock would see its key vanish.
func (c *SharedConsul) removeAll(ctx context.Context) error {
	var services map[string]struct{ Service string }
	if err := getJSON(ctx, c.addr, "/v1/agent/services", &services); err != nil {
		return err
	}
	var errs []error
	for id, s := range services {
		if strings.Contains(id, c.prefix) || strings.Contains(s.Service, c.prefix) {
			_, err := callHTTP(ctx, http.MethodPut, c.addr, "/v1/agent/service/deregister/"+url.PathEscape(id))
			errs = append(errs, err)
		}
	}
	_, err := callHTTP(ctx, http.MethodDelete, c.addr, "/v1/kv/"+c.prefix+"?recurse")
	return errors.Join(append(errs, err)...)
}
