package cluster

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"
)

// fakeConsul answers what a heartbeat asks. It gives a session the shortest life that Consul promises.
type fakeConsul struct {
	mu      sync.Mutex
	denied  []string // parts of paths that are refused
	passed  time.Time
	renewed time.Time
	session int // number of the last session
	slow    time.Duration
}

func (f *fakeConsul) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	slow := f.slow
	f.mu.Unlock()
	select { // half before Consul acts, half after
	case <-time.After(slow / 2):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	status, body := f.answer(r.URL.Path)
	select {
	case <-time.After(slow / 2):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

func (f *fakeConsul) answer(path string) (status int, body string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, part := range f.denied {
		if strings.Contains(path, part) {
			return http.StatusForbidden, "Permission denied"
		}
	}
	current := fmt.Sprint("session-", f.session)
	switch {
	case strings.Contains(path, ":alive"):
		f.passed = time.Now()
	case strings.HasSuffix(path, "/session/create"):
		f.session++
		f.renewed = time.Now()
		return http.StatusOK, fmt.Sprintf(`{"ID":"session-%d"}`, f.session)
	case strings.Contains(path, "/session/") && (!strings.HasSuffix(path, current) || time.Now().After(f.ends())):
		if strings.Contains(path, "/renew/") {
			return http.StatusNotFound, "gone"
		}
		return http.StatusOK, "[]"
	case strings.Contains(path, "/session/renew/"):
		f.renewed = time.Now()
		return http.StatusOK, "[]"
	case strings.Contains(path, "/session/info/"):
		return http.StatusOK, fmt.Sprintf(`[{"ID":%q}]`, current)
	case strings.Contains(path, "/session/destroy/"):
		f.session++
		return http.StatusOK, "true"
	case strings.HasSuffix(path, "/workers/"):
		return http.StatusNotFound, ""
	}
	return http.StatusOK, "true"
}

// ends is the earliest time at which Consul may end the session: a TTL after the check passed, or the session's own TTL
// after it was renewed.
func (f *fakeConsul) ends() time.Time {
	byCheck, byTTL := f.passed.Add(3*time.Second), f.renewed.Add(10*time.Second)
	if byTTL.Before(byCheck) {
		return byTTL
	}
	return byCheck
}

// Whatever part of a heartbeat is refused, or however slow it is, the node owns nothing when its session may end.
func TestANodeStopsBeforeItsSessionCanEnd(t *testing.T) {
	for name, breaks := range map[string]func(f *fakeConsul){
		"all is refused":         func(f *fakeConsul) { f.denied = []string{"/"} },
		"renewing is refused":    func(f *fakeConsul) { f.denied = []string{"/session/renew/", "/session/create"} },
		"reading is refused":     func(f *fakeConsul) { f.denied = []string{"/session/info/", "/session/create"} },
		"the agent refuses":      func(f *fakeConsul) { f.denied = []string{"/agent/"} },
		"the check is refused":   func(f *fakeConsul) { f.denied = []string{":alive"} },
		"nothing is answered":    func(f *fakeConsul) { f.slow = time.Hour },
		"a beat takes too long":  func(f *fakeConsul) { f.slow = 900 * time.Millisecond },
		"a beat takes its limit": func(f *fakeConsul) { f.slow = 510 * time.Millisecond },
		"beats are slow":         func(f *fakeConsul) { f.slow = 450 * time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeConsul{}
				c := NewConsul(ConsulConfig{
					Node: "a", Layout: eight, Logger: slog.New(slog.DiscardHandler), Host: idleHost{},
					Consul: &api.Config{Address: "consul", HttpClient: &http.Client{Transport: f}},
				})
				// The session lasts as long as the check at least: then only the check can end it first.
				require.Equal(t, 10*time.Second, c.cfg.SessionTTL)
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					c.beatLoop(ctx)
				}()
				time.Sleep(10 * time.Second)
				synctest.Wait()
				c.owned.take([]int{1}, nil)
				require.True(t, c.owned.Owns(1), "it beats")
				f.mu.Lock()
				breaks(f)
				slow := len(f.denied) == 0 && f.slow < time.Second/2
				f.mu.Unlock()
				broken, ended := time.Now(), time.Hour
				for range 30000 {
					time.Sleep(time.Millisecond)
					f.mu.Lock()
					over := time.Now().After(f.ends())
					f.mu.Unlock()
					if over {
						require.False(t, c.owned.Owns(1), "its session may have ended")
						ended = min(ended, time.Since(broken))
					}
				}
				require.Equal(t, slow, c.owned.Owns(1))
				if strings.Contains(name, "ing is refused") {
					require.Less(t, ended, 4*time.Second, "the check ends the session, which is faster than its own TTL")
				}

				f.mu.Lock()
				f.denied, f.slow = nil, 0
				f.mu.Unlock()
				time.Sleep(10 * time.Second)
				synctest.Wait()
				require.Empty(t, c.Lost(), "it goes on by itself")
				stop()
				<-done
				c.owned.expire(0)
			})
		})
	}
}
