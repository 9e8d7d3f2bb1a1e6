package otlp

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Spans that are dropped now and then are one line, until none was for a minute.
func TestTroubleIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	var is trouble
	now, down := time.Now(), errors.New("it is down")
	is.log(logger, now, 0, nil)
	require.Empty(t, log.String())
	for n := range 100 {
		now = now.Add(10 * time.Second)
		err, dropped := error(nil), int64(0)
		if n%4 == 0 {
			err, dropped = down, 7
		}
		is.log(logger, now, dropped, err)
	}
	require.Equal(t, 1, strings.Count(log.String(), "spans are dropped"))
	require.NotContains(t, log.String(), "again")
	is.log(logger, now.Add(time.Minute), 0, nil)
	require.Contains(t, log.String(), `"spans are exported again" dropped=175`)
	is.log(logger, now.Add(2*time.Minute), 7, down)
	require.Equal(t, 2, strings.Count(log.String(), "spans are dropped"))
}
