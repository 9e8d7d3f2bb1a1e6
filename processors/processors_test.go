package processors_test

import (
	"io"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/processors"
)

func TestRegister(t *testing.T) {
	r := processor.NewRegistry()
	lines, out := logger(slog.LevelInfo)
	require.NoError(t, processors.Register(r, lines))
	require.ErrorContains(t, processors.Register(r, lines), `"log": the name is taken`)

	b := orderClose
	b.Processor = "log"
	p, err := r.Build(b, nil)
	require.NoError(t, err)
	require.Implements(t, (*processor.Batch)(nil), p)
	require.NoError(t, p.Process(t.Context(), order()))
	require.Contains(t, out.String(), "task fired")

	receiver, calls := record(t)
	b.Processor = "webhook"
	p, err = r.Build(b, processors.WebhookConfig{URL: receiver.URL})
	require.NoError(t, err)
	require.NoError(t, p.Process(t.Context(), order()))
	require.Equal(t, "413351953711104", (<-calls).Header.Get("webhook-id"))
	require.NoError(t, p.(io.Closer).Close())

	_, err = r.Build(b, nil)
	require.EqualError(t, err, "biz_type order_close: processor webhook: the settings are a <nil>; a WebhookConfig is needed")
	_, err = r.Build(b, processors.WebhookConfig{})
	require.ErrorContains(t, err, "biz_type order_close: processor webhook: url is not an absolute URL")
}
