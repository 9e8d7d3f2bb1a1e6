package testrig_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// A Prometheus has the configuration that it was given.
func TestPrometheusScrapes(t *testing.T) {
	t.Parallel()
	r := testrig.StartPrometheus(t, "global: {scrape_interval: 1s}\nscrape_configs: [{job_name: nobody, static_configs: [{targets: ['127.0.0.1:1']}]}]\n")
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: await.Patience}
	await.That(t, func() bool {
		res, err := c.Get("http://" + r.Addr() + "/api/v1/query?query=up")
		require.NoError(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return strings.Contains(string(body), `"job":"nobody"`)
	}, "Prometheus scrapes")
}
