package webhook_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/processor/webhook"
)

// A call has the trace of its task; a call of several has none.
func TestCallHasTheTrace(t *testing.T) {
	const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	var got []string
	r := serve(t, func(_ http.ResponseWriter, req *http.Request) { got = req.Header.Values("traceparent") })
	list := orders(2)
	w := open(t, webhook.Config{URL: r.URL})
	require.NoError(t, w.Process(t.Context(), list[0]))
	require.Empty(t, got)
	list[0].Trace = traceparent
	require.NoError(t, w.Process(t.Context(), list[0]))
	require.Equal(t, []string{traceparent}, got)

	w = open(t, webhook.Config{URL: r.URL, Batch: 50})
	require.NoError(t, w.Process(t.Context(), list[0]), "alone")
	require.Equal(t, []string{traceparent}, got)
	require.Equal(t, make([]error, 2), w.ProcessBatch(t.Context(), list))
	require.Empty(t, got)
}
