package console_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/console"
	"github.com/timeoutcenter/toc/httpapi"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/wire"
)

// stream is an open page's connection.
type stream struct {
	t      *testing.T
	answer *http.Response
	lines  *bufio.Scanner
	close  context.CancelFunc
}

// look opens the stream of a topic on a real server, as a browser does.
func (f *fake) look(t *testing.T, server *httptest.Server, topic string) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, "GET", server.URL+"/console/live?topic="+topic, nil)
	require.NoError(t, err)
	r.AddCookie(&http.Cookie{Name: "__Host-toc", Value: f.cookie})
	a, err := server.Client().Do(r)
	require.NoError(t, err)
	s := &stream{t, a, bufio.NewScanner(a.Body), cancel}
	s.lines.Buffer(nil, 1<<20)
	t.Cleanup(func() { cancel(); _ = a.Body.Close() })
	if a.StatusCode == 200 {
		require.Equal(t, "text/event-stream", a.Header.Get("Content-Type"))
		require.True(t, s.lines.Scan())
		require.Equal(t, "retry: 5000", s.lines.Text())
	}
	return s
}

// next waits for an event, and returns its parts.
func (s *stream) next() (parts map[string]string) {
	s.t.Helper()
	for s.lines.Scan() {
		if data, ok := strings.CutPrefix(s.lines.Text(), "data: "); ok {
			require.NoError(s.t, json.Unmarshal([]byte(data), &parts))
			return parts
		}
	}
	require.Fail(s.t, "the stream has ended", "%v", s.lines.Err())
	return nil
}

// server serves the API with the limits of a real one.
func (f *fake) server(t *testing.T) *httptest.Server {
	s := httptest.NewUnstartedServer(f.api)
	s.Config = httpapi.Server("", f.api, nilLog)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// One snapshot a tick serves all who look at the same; the first event has all parts, the others those that have changed.
func TestStream(t *testing.T) {
	f := newFake(t)
	server := f.server(t)
	var viewers []*stream
	for range 10 {
		viewers = append(viewers, f.look(t, server, "overview"))
	}
	require.Equal(t, []string{"overview"}, f.Watched())
	f.Publish(t.Context())
	require.Equal(t, 1, f.center.asked, "ten viewers, one question")
	for _, v := range viewers {
		parts := v.next()
		require.Len(t, parts, 6)
		require.Contains(t, parts["live-verdict"], "nothing is overdue")
	}
	f.center.say(console.NodePulse{Name: "n1", Pulse: wire.Pulse{Ready: true, Degraded: []string{"database 3 <b>hangs</b>"}}})
	f.Forget()
	f.Publish(t.Context())
	for _, v := range viewers {
		parts := v.next()
		require.Contains(t, parts["live-faults"], "database 3 &lt;b&gt;hangs&lt;/b&gt;")
		require.Contains(t, parts["live-verdict"], "1 thing is wrong")
		require.NotContains(t, parts, "live-types", "it has not changed")
	}
	late := f.look(t, server, "overview")
	f.Publish(t.Context())
	require.Len(t, late.next(), 6, "whoever comes later gets all")

	for _, v := range append(viewers, late) {
		v.close()
	}
	await.That(t, func() bool { return len(f.Watched()) == 0 }, "nobody looks")
	asked := f.center.asked
	f.Forget()
	f.Publish(t.Context())
	require.Equal(t, asked, f.center.asked, "nobody looks, so nobody is asked")
}

// Each page with live parts has a stream of its own. The HTML of an event is that of the page.
func TestTopics(t *testing.T) {
	f := newFake(t)
	server := f.server(t)
	for topic, page := range map[string]string{"overview": "/console/", "type/coupon": "/console/types/coupon", "operations": "/console/operations", "cluster": "/console/cluster"} {
		v := f.look(t, server, topic)
		f.Publish(t.Context())
		parts, text := v.next(), f.get(t, page)
		require.Contains(t, text, `data-topic="`+topic+`"`)
		require.NotEmpty(t, parts)
		for id, inner := range parts {
			require.Contains(t, text, `id="`+id+`">`, topic)
			require.Contains(t, text, inner, "%s of %s is as on the page", id, topic)
		}
		v.close()
	}
	for _, topic := range []string{"", "none", "type", "type/", "type/nope", "overview/x", "tasks"} {
		require.Equal(t, 404, f.look(t, server, topic).answer.StatusCode, topic)
	}
}

// There may be so many streams and no more; all end when the console does.
func TestManyStreams(t *testing.T) {
	f := newFake(t)
	server := f.server(t)
	var open []*stream
	for range console.MaxStreams {
		open = append(open, f.look(t, server, "cluster"))
	}
	refused := f.look(t, server, "cluster")
	require.Equal(t, 503, refused.answer.StatusCode)
	require.Equal(t, "30", refused.answer.Header.Get("Retry-After"))
	open[0].close()
	await.That(t, func() bool { return f.look(t, server, "cluster").answer.StatusCode == 200 }, "there is room for one more")
	f.CloseStreams()
	for _, v := range open[1:] {
		for v.lines.Scan() {
		}
		require.NoError(t, v.lines.Err(), "the end is orderly")
	}
}
