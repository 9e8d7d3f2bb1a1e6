package console_test

import (
	"encoding/json"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/server/console"
)

// live asks for the live parts of a page, as an open page does.
func (f *fake) live(t *testing.T, topic string, headers ...string) answer {
	t.Helper()
	return f.ask(t, "GET", "/console/live?topic="+url.QueryEscape(topic), nil, headers...)
}

func parts(t *testing.T, a answer) (parts map[string]string) {
	t.Helper()
	require.Equal(t, 200, a.Code)
	require.Equal(t, "application/json", a.Header().Get("Content-Type"))
	require.NoError(t, json.Unmarshal([]byte(a.text), &parts))
	return parts
}

// One snapshot a tick serves all who look at the same page. What has not changed is not sent again.
func TestLive(t *testing.T) {
	f := newFake(t)
	asked := f.center.asked
	first := f.live(t, "overview")
	for range 10 {
		require.Equal(t, first.text, f.live(t, "overview").text)
	}
	require.Equal(t, asked+1, f.center.asked, "many viewers, one question")
	require.Len(t, parts(t, first), 6)
	require.Contains(t, parts(t, first)["live-verdict"], "nothing is overdue")
	tag := first.Header().Get("ETag")
	require.Equal(t, "private, no-cache", first.Header().Get("Cache-Control"))
	same := f.live(t, "overview", "If-None-Match", tag)
	require.Equal(t, 304, same.Code)
	require.Empty(t, same.text)

	f.center.say(console.NodePulse{Name: "n1", Pulse: api.Pulse{Ready: true, Degraded: []string{"database 3 <b>hangs</b>"}}})
	require.Equal(t, 304, f.live(t, "overview", "If-None-Match", tag).Code, "until the next tick")
	f.Forget()
	changed := parts(t, f.live(t, "overview", "If-None-Match", tag))
	require.Contains(t, changed["live-faults"], "database 3 &lt;b&gt;hangs&lt;/b&gt;")
	require.Contains(t, changed["live-verdict"], "1 thing is wrong")
	require.Equal(t, parts(t, first)["live-types"], changed["live-types"])
}

// Each page with live parts has a topic. The HTML of a part is that of the page.
func TestTopics(t *testing.T) {
	f := newFake(t)
	for topic, page := range map[string]string{"overview": "/console/", "type/coupon": "/console/types/coupon", "operations": "/console/operations", "cluster": "/console/cluster"} {
		list, text := parts(t, f.live(t, topic)), f.get(t, page)
		require.Contains(t, text, `data-topic="`+topic+`"`)
		require.NotEmpty(t, list)
		for id, inner := range list {
			require.Contains(t, text, `id="`+id+`">`, topic)
			require.Contains(t, text, inner, "%s of %s is as on the page", id, topic)
		}
	}
	for _, topic := range []string{"", "none", "type", "type/", "type/nope", "overview/x", "tasks"} {
		require.Equal(t, 404, f.live(t, topic).Code, topic)
	}
}
