package webhook

import (
	"crypto/tls"
	"net/http"
	"time"

	"github.com/timeoutcenter/toc/internal/outside"
)

// The limits of a connection.
const (
	dialTime   = 10 * time.Second // or one run's time, where that is shorter
	maxHeaders = 64 << 10         // bytes of an answer's headers
)

// newTransport makes the connections of one webhook: as many as there are
// workers. run is how long one call may take.
func newTransport(workers int, run time.Duration, out outside.Dial) *http.Transport {
	workers = max(workers, 1)
	dial := dialTime
	if run > 0 {
		dial = min(dial, run)
	}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         out.Within(dial),
		TLSHandshakeTimeout: dial,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:   true, // own dialer and TLS settings would turn it off
		// A worker never waits for a connection: there are as many. Without the
		// limit one more is dialled whenever a call starts a moment before
		// another one's connection comes back.
		MaxConnsPerHost:        workers,
		MaxIdleConnsPerHost:    workers,
		MaxResponseHeaderBytes: maxHeaders,
		DisableCompression:     true, // answers are hardly read
	}
}
