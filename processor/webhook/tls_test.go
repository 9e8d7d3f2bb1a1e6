package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/timeoutcenter/toc/task"
)

// serveTLS starts a server, and a webhook that trusts its certificate.
func serveTLS(t *testing.T, s *httptest.Server) *Processor {
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes fail on purpose
	s.StartTLS()
	t.Cleanup(s.Close)
	w, err := New(task.BizType{Name: "order_close", Workers: 64, Timeout: 30 * time.Second}, Config{URL: s.URL})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	w.pool.Template.TLSClientConfig.RootCAs = x509.NewCertPool()
	w.pool.Template.TLSClientConfig.RootCAs.AddCert(s.Certificate())
	return w
}

func TestHTTPSIsHTTP2WhereItCan(t *testing.T) {
	for _, http2 := range []bool{true, false} {
		var opened, major atomic.Int32
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			major.Store(int32(r.ProtoMajor))
		}))
		s.EnableHTTP2 = http2
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				opened.Add(1)
			}
		}
		w := serveTLS(t, s)
		var all errgroup.Group
		for range 64 {
			all.Go(func() error {
				for range 20 {
					if err := w.Process(t.Context(), task.Task{JobID: 1}); err != nil {
						return err
					}
				}
				return nil
			})
		}
		require.NoError(t, all.Wait())
		require.Equal(t, http2, major.Load() == 2)
		require.LessOrEqual(t, opened.Load(), int32(2*64), "of 1,280 requests: net/http drops a connection now and then when the machine is busy")
	}
}

func TestUntrustedAndOldTLSAreRefused(t *testing.T) {
	old := httptest.NewUnstartedServer(http.NotFoundHandler())
	old.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	require.ErrorContains(t, serveTLS(t, old).Process(t.Context(), task.Task{}), "protocol version")

	w := serveTLS(t, httptest.NewUnstartedServer(http.NotFoundHandler()))
	w.pool.Template.TLSClientConfig.RootCAs = x509.NewCertPool()
	require.ErrorContains(t, w.Process(t.Context(), task.Task{}), "certificate")
}
