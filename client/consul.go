package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// consulAge is how long a list of servers from Consul is good for. After that a request still uses it, and starts a new read.
const consulAge = 10 * time.Second

// maxConsul is how much of an answer of Consul is read, in bytes.
const maxConsul = 4 << 20

// WithConsulToken sends an ACL token to Consul, where New was given a consul URL. It needs service:read of the service and
// node:read.
func WithConsulToken(token string) Option { return func(c *Client) { c.consulToken = token } }

// consul finds the servers of a center: the instances of a service that pass their checks.
type consul struct {
	name string // as New was given it
	ask  string // URL; "": name is wrong

	mu      sync.Mutex
	known   []string // base URLs, in an order of chance; nil: not read yet
	read    time.Time
	err     error // of the last read
	reading singleflight.Group
}

// consulOf reads a URL of a service in Consul, like consul://127.0.0.1:8500/toc; nil: it is another URL.
func consulOf(name string) *consul {
	u, err := url.Parse(name)
	if err != nil || u.Scheme != "consul" && u.Scheme != "consul+https" {
		return nil
	}
	s := &consul{name: name}
	service := strings.Trim(u.Path, "/")
	if u.Host == "" || service == "" || u.User != nil {
		return s
	}
	q := u.Query()
	q.Set("passing", "true")
	scheme := "http"
	if u.Scheme == "consul+https" {
		scheme = "https"
	}
	s.ask = scheme + "://" + u.Host + "/v1/health/service/" + url.PathEscape(service) + "?" + q.Encode()
	return s
}

// servers gives the servers as they were last read. If the last read is older than consulAge, it starts another one.
func (s *consul) servers(ctx context.Context, c *Client) ([]string, error) {
	s.mu.Lock()
	known, old := s.known, time.Since(s.read) > consulAge
	s.mu.Unlock()
	if known == nil {
		return s.refresh(ctx, c)
	}
	if old {
		s.start(c)
	}
	return known, nil
}

// refresh reads the servers now. If Consul gives no answer with servers, the last list stays.
func (s *consul) refresh(ctx context.Context, c *Client) ([]string, error) {
	select {
	case <-s.start(c):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		return nil, s.err
	}
	return s.known, nil
}

// start has the servers read, unless that is under way. The channel gets something then.
func (s *consul) start(c *Client) <-chan singleflight.Result {
	return s.reading.DoChan(s.ask, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), tryTime)
		defer cancel()
		found, err := s.healthy(ctx, c)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.read, s.err = time.Now(), err; err == nil {
			s.known = found
		}
		return nil, nil
	})
}

// healthy asks Consul.
func (s *consul) healthy(ctx context.Context, c *Client) ([]string, error) {
	if s.ask == "" {
		return nil, fmt.Errorf("%q is not the URL of a service in Consul; write consul://127.0.0.1:8500/toc", s.name)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.ask, nil)
	if err != nil {
		return nil, fmt.Errorf("ask Consul: %w", err)
	}
	if c.consulToken != "" {
		r.Header.Set("X-Consul-Token", c.consulToken)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("ask Consul: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxConsul))
	var instances []instance
	switch {
	case err != nil:
	case answer.StatusCode != http.StatusOK:
		err = fmt.Errorf("%s: %.200q", answer.Status, text)
	default:
		err = json.Unmarshal(text, &instances)
	}
	if err != nil {
		return nil, fmt.Errorf("ask Consul for %s: %w", s.name, err)
	}
	var found []string
	for _, i := range instances {
		if base := i.base(); base != "" {
			found = append(found, base)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s: %w", s.name, errNoInstance)
	}
	rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	return found, nil
}

var errNoInstance = errors.New("no instance of the service passes its checks")

// instance is one of a service, as Consul answers it.
type instance struct {
	Node    struct{ Address string }
	Service struct {
		Address string
		Port    int
		Meta    map[string]string
	}
}

// base is the URL of the server. A node of a center whose address is a URL registers it in its meta data.
func (i instance) base() string {
	if advertised := i.Service.Meta["address"]; strings.HasPrefix(advertised, "http://") || strings.HasPrefix(advertised, "https://") {
		return baseOf(advertised)
	}
	host := i.Service.Address
	if host == "" {
		host = i.Node.Address
	}
	if host == "" || i.Service.Port == 0 {
		return ""
	}
	return "http://" + net.JoinHostPort(host, strconv.Itoa(i.Service.Port))
}
