package client_test

import (
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// registry registers servers as instances of a service of a real Consul.
type registry struct {
	*api.Agent
	service string
}

func (r registry) add(t *testing.T, s *one) {
	u, err := url.Parse(s.URL)
	require.NoError(t, err)
	port, err := strconv.Atoi(u.Port())
	require.NoError(t, err)
	require.NoError(t, r.ServiceRegister(&api.AgentServiceRegistration{
		ID: r.service + u.Port(), Name: r.service, Address: u.Hostname(), Port: port,
		Check: &api.AgentServiceCheck{CheckID: r.service + u.Port(), TTL: "1h", Status: api.HealthPassing},
	}))
}

func (r registry) fail(t *testing.T, s *one) {
	require.NoError(t, r.UpdateTTL(r.service+s.URL[strings.LastIndex(s.URL, ":")+1:], "", api.HealthCritical))
}

// A client goes to the instances that pass their checks, and to new ones when those that it knows are gone.
func TestConsul(t *testing.T) {
	rig := testrig.Consul(t)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	consul, err := api.NewClient(&api.Config{Address: rig.Addr(), Transport: transport})
	require.NoError(t, err)
	r := registry{consul.Agent(), rig.Prefix() + "toc"}
	toc := open(t, "consul://"+rig.Addr()+"/"+r.service)

	_, err = toc.Get(t.Context(), 7)
	require.ErrorContains(t, err, "no instance of the service passes its checks")
	a, b, sick := startOne(t), startOne(t), startOne(t)
	r.add(t, sick)
	r.fail(t, sick)
	r.add(t, a)
	await.Success(t, func() error { return toc.Cancel(t.Context(), 7) }, "Consul tells of it")
	require.NoError(t, toc.Cancel(t.Context(), 7))
	require.EqualValues(t, 2, a.calls.Load())

	r.add(t, b)
	r.fail(t, a)
	await.That(t, func() bool {
		healthy, _, err := consul.Health().Service(r.service, "", true, nil)
		return err == nil && len(healthy) == 1
	}, "Consul knows that one server is well")
	a.Close()
	toc.CloseIdleConnections()
	require.NoError(t, toc.Cancel(t.Context(), 7), "not safe to repeat, but nothing was sent")
	require.EqualValues(t, 1, b.calls.Load())
	require.Zero(t, sick.calls.Load())
}

// fakeConsul answers as a Consul, and as any server of a center.
type fakeConsul struct {
	answer        string
	status, asked int
	query, token  string
	servers       []string // those that were asked
}

func (f *fakeConsul) client(address string) *client.Client {
	return client.New(address, client.WithConsulToken("t"), client.WithToken("secret"), client.WithHTTPClient(&http.Client{Transport: f}))
}

func (f *fakeConsul) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path == "/v1/health/service/toc" {
		f.asked++
		f.query, f.token = r.URL.Scheme+"?"+r.URL.RawQuery, r.Header.Get("X-Consul-Token")+r.Header.Get("Authorization")
		return answered(f.status, f.answer), nil
	}
	f.servers = append(f.servers, r.URL.Scheme+"://"+r.URL.Host)
	return answered(200, `{"outcome":"cancelled"}`), nil
}

func answered(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

func instances(addresses ...string) string {
	var list []string
	for _, a := range addresses {
		list = append(list, `{"Node":{"Address":"10.0.0.1"},"Service":`+a+`}`)
	}
	return "[" + strings.Join(list, ",") + "]"
}

// What Consul said is read anew in the background when it is old; when Consul fails, what it said stays.
func TestConsulIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeConsul{status: 200, answer: instances(`{"Address":"","Port":1}`)}
		toc := f.client("consul://consul:8500/toc?tag=blue")
		call := func() string {
			require.NoError(t, toc.Cancel(t.Context(), 7))
			synctest.Wait()
			return f.servers[len(f.servers)-1]
		}
		require.Equal(t, "http://10.0.0.1:1", call(), "the node's own address")
		require.Equal(t, "http?passing=true&tag=blue", f.query)
		require.Equal(t, "t", f.token, "the center's token is not for Consul")

		f.answer = instances(`{"Address":"::1","Port":2}`)
		require.Equal(t, "http://10.0.0.1:1", call())
		require.Equal(t, 1, f.asked)
		time.Sleep(11 * time.Second)
		require.Equal(t, "http://10.0.0.1:1", call(), "no call waits for Consul")
		require.Equal(t, "http://[::1]:2", call())
		require.Equal(t, 2, f.asked)

		f.status, f.answer = 500, "no leader"
		time.Sleep(11 * time.Second)
		require.Equal(t, "http://[::1]:2", call())
		require.Equal(t, "http://[::1]:2", call())
		require.Equal(t, 3, f.asked)
	})
}

func TestConsulSaysNothingOfUse(t *testing.T) {
	f := &fakeConsul{status: 200, answer: instances(`{"Meta":{"address":"https://node-1.test/"},"Port":0}`, `{"Port":0}`)}
	require.NoError(t, f.client("consul+https://consul/toc/").Cancel(t.Context(), 7))
	require.Equal(t, []string{"https://node-1.test"}, f.servers)
	require.True(t, strings.HasPrefix(f.query, "https?"))

	for answer, want := range map[string]string{"[]": "no instance", "<html>": "invalid character", instances(`{"Port":0}`): "no instance", "{}": "cannot unmarshal"} {
		f.answer = answer
		require.ErrorContains(t, f.client("consul://consul/toc").Cancel(t.Context(), 7), want)
	}
	f.status, f.answer = 403, "Permission denied"
	require.ErrorContains(t, f.client("consul://consul/toc").Cancel(t.Context(), 7), "Permission denied")
	for _, wrong := range []string{"consul://consul", "consul:///toc", "consul://", "consul://u:p@consul/toc"} {
		require.ErrorContains(t, f.client(wrong).Cancel(t.Context(), 7), "is not the URL of a service in Consul")
	}
}
