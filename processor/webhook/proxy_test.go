package webhook_test

import (
	"net/http"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/processor/webhook"
)

// TestProxyOfTheEnvironment runs itself again: net/http reads the environment
// once a process.
func TestProxyOfTheEnvironment(t *testing.T) {
	const child = "TOC_TEST_PROXIED"
	cfg := webhook.Config{URL: "http://shop.example/fire"}
	if os.Getenv(child) != "" {
		require.NoError(t, open(t, cfg).Process(t.Context(), order()))
		return
	}

	asked := make(chan string, 1)
	proxy := serve(t, func(_ http.ResponseWriter, r *http.Request) { asked <- r.RequestURI })
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.count=1")
	cmd.Env = append(os.Environ(), child+"=yes", "HTTP_PROXY="+proxy.URL, "NO_PROXY=", "no_proxy=")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Equal(t, cfg.URL, <-asked)
}
