package memnet

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Protocols are the protocols of Serve.
var Protocols = []string{"http/1.1", "h2"}

// Serve starts an HTTP server at an address; its certificate is for example.com, so an address for h2 is example.com:443. It
// returns the base URL. The server ends with the test, or with the bubble's function if that calls stop.
func (n *Net) Serve(t testing.TB, address, protocol string, h http.Handler) (base string, stop func()) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	_ = s.Listener.Close()
	s.Listener = n.Listen(address)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if protocol == "h2" {
		s.EnableHTTP2 = true
		s.StartTLS()
		return "https://" + address, s.Close
	}
	s.Start()
	return "http://" + address, s.Close
}

// Enter makes a transport dial in this network, and trust the servers of Serve.
func (n *Net) Enter(t *http.Transport) {
	t.DialContext, t.Proxy, t.ForceAttemptHTTP2 = n.Dial, nil, true
	s := httptest.NewUnstartedServer(nil)
	_ = s.Listener.Close()
	s.Listener = new(Net).Listen("")
	s.StartTLS()
	defer s.Close()
	t.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool()}
	t.TLSClientConfig.RootCAs.AddCert(s.Certificate())
}
