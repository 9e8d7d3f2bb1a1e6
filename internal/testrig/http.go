package testrig

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
)

// getJSON reads an answer that is JSON. The rig needs few of them, which is no reason to choose client libraries for
// everyone.
func getJSON(ctx context.Context, addr, path string, answer any) error {
	body, err := callHTTP(ctx, http.MethodGet, addr, path)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, answer)
}

// callHTTP sends a request without a body and returns what is answered. No connection stays open.
func callHTTP(ctx context.Context, method, addr, path string) ([]byte, error) {
	transport := &http.Transport{DisableKeepAlives: true}
	if filepath.IsAbs(addr) { // a socket
		at := addr
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", at)
		}
		addr = "localhost"
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: transport}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, path, res.Status, strings.TrimSpace(string(body)))
	}
	return body, err
}
