package otlp

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/timeoutcenter/toc/internal/httppool"
	"github.com/timeoutcenter/toc/internal/outside"
)

// client posts spans to a collector: OTLP 1.x over HTTP, in protobuf. It is an otlptrace.Client. (OpenTelemetry's own one
// for HTTP comes with all of gRPC.)
type client struct {
	url            string
	user, password string
	http           *http.Client
}

// tracesPath is where a collector takes traces.
const tracesPath = "/v1/traces"

// newClient makes the client for an address: a URL to which tracesPath is added, or host:port.
func newClient(address string, dial outside.Dial) (*client, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("the address of the collector is not a URL")
	}
	c := &client{user: u.User.Username()}
	c.password, _ = u.User.Password()
	u.User = nil
	u.Path, u.RawPath = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), tracesPath)+tracesPath, ""
	c.url = u.String()
	c.http = &http.Client{
		Transport: httppool.New(&http.Transport{
			DialContext: dial.Within(0), Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
			TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
			MaxIdleConnsPerHost: 1, MaxResponseHeaderBytes: 64 << 10,
		}),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// Start implements otlptrace.Client.
func (c *client) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *client) Stop(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces implements otlptrace.Client. Its errors show no path and no password.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// On the wire the same as an ExportTraceServiceRequest, whose Go type brings gRPC.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	if c.user != "" || c.password != "" {
		req.SetBasicAuth(c.user, c.password)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if failed, is := errors.AsType[*url.Error](err); is {
			err = failed.Err // without the URL
		}
		return fmt.Errorf("%s: %w", req.URL.Host, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("%s: answers %d", req.URL.Host, resp.StatusCode)
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
	return nil
}
