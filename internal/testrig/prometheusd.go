package testrig

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// prometheusd is the engine of Prometheus.
type prometheusd struct {
	binary string
	config string // the text of its configuration file
}

func (prometheusd) name() string { return "prometheus" }

func (p prometheusd) prepare(_ context.Context, dir string) error {
	return os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(p.config), 0o600)
}

func (p prometheusd) command(dir string, port int) *exec.Cmd {
	cmd := exec.Command(p.binary,
		"--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+loopback(port),
		"--log.level=warn",
	)
	cmd.Dir = dir
	return cmd
}

func (prometheusd) ready(ctx context.Context, dir string, port, _ int) error {
	if _, err := callHTTP(ctx, "GET", loopback(port), "/-/ready"); err != nil {
		return err
	}
	body, err := callHTTP(ctx, "GET", loopback(port), "/api/v1/status/runtimeinfo")
	if err != nil {
		return err
	}
	var info struct{ Data struct{ CWD string } }
	if err := json.Unmarshal(body, &info); err != nil {
		return err
	}
	if real, err := filepath.EvalSymlinks(dir); err != nil || info.Data.CWD != real {
		return errors.Join(errors.New("another server has the port"), err)
	}
	return nil
}

// PrometheusServer is a Prometheus that belongs to one test.
type PrometheusServer struct{ Control }

// StartPrometheus starts a server for this test alone, with the text of a configuration file. Its data goes when the test
// ends.
func StartPrometheus(t testing.TB, config string) *PrometheusServer {
	t.Helper()
	needsServer(t)
	binary, err := findBinary("prometheus")
	return &PrometheusServer{startPrivate(t, prometheusd{binary: binary, config: config}, err)}
}

// Addr is host:port of the HTTP API.
func (p *PrometheusServer) Addr() string { return p.srv.addr() }
