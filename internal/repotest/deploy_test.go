package repotest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/timeoutcenter/toc/configs"
)

type variable struct{ Name, Value string }

// pod is what a manifest says of its one container.
type pod struct {
	TerminationGracePeriodSeconds int `yaml:"terminationGracePeriodSeconds"`
	Containers                    []struct {
		Args         []string
		Env          []variable
		VolumeMounts []struct {
			MountPath string `yaml:"mountPath"`
		} `yaml:"volumeMounts"`
		ReadinessProbe probe  `yaml:"readinessProbe"`
		LivenessProbe  probe  `yaml:"livenessProbe"`
		StartupProbe   *probe `yaml:"startupProbe"`
		Lifecycle      struct {
			PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
		}
	}
}

type probe struct {
	HTTPGet struct{ Path string } `yaml:"httpGet"`
}

func podOf(t *testing.T, path string) pod {
	var file struct {
		Spec struct{ Template struct{ Spec pod } }
	}
	require.NoError(t, yaml.Unmarshal(read(t, path), &file))
	require.Len(t, file.Spec.Template.Spec.Containers, 1)
	c := file.Spec.Template.Spec.Containers[0]
	require.Equal(t, []string{"--config", "/etc/toc/toc.yaml"}, c.Args[1:3])
	require.Equal(t, "/etc/toc", c.VolumeMounts[0].MountPath)
	return file.Spec.Template.Spec
}

// started is the configuration that a container starts with.
func started(t *testing.T, environment []variable) configs.Config {
	secrets := t.TempDir()
	for name, text := range map[string]string{
		"tokens": "token-0123456789", "cluster-secret": "secret-0123456789", "mysql-dsn": "toc@tcp(db:3306)/toc_%d", "mysql-admin-dsn": "admin@tcp(db:3306)/toc_%d",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(secrets, name), []byte(text), 0o600))
	}
	values := strings.NewReplacer("$(POD_IP)", "10.1.2.3", "$(HOST_IP)", "10.1.0.1", "/run/secrets/toc", secrets)
	var environ []string
	for _, v := range environment {
		if strings.HasPrefix(v.Name, "TOC_") && v.Value != "" {
			environ = append(environ, v.Name+"="+values.Replace(v.Value))
		}
	}
	cfg, err := configs.Load("deploy/kubernetes/toc.yaml", environ)
	require.NoError(t, err)
	require.Empty(t, cfg.Warnings())
	return cfg
}

// The manifests fit the program: it takes their configuration and what stands over it, has the routes of the probes, and gets
// the time that it drains for. scripts/lint.sh has linters look at the rest.
func TestKubernetes(t *testing.T) {
	p := podOf(t, "deploy/kubernetes/deployment.yaml")
	node := p.Containers[0]
	cfg := started(t, node.Env)
	require.Equal(t, "0.0.0.0:8080", cfg.HTTP.Listen)
	require.Equal(t, "10.1.2.3:8080", cfg.HTTP.Advertise)
	require.Equal(t, []string{"token-0123456789"}, cfg.HTTP.Tokens)
	require.Equal(t, "secret-0123456789", cfg.Cluster.Secret)
	require.Equal(t, "10.1.0.1:8500", cfg.Cluster.Consul.Address)
	require.Equal(t, "toc@tcp(db:3306)/toc_%d", cfg.Store.MySQL.DSN)
	require.Equal(t, "/readyz", node.ReadinessProbe.HTTPGet.Path)
	require.Equal(t, "/healthz", node.LivenessProbe.HTTPGet.Path)
	require.Nil(t, node.StartupProbe, "a node may wait for its servers at its start, as long as it takes")
	turnAway := node.Lifecycle.PreStop.Sleep.Seconds
	require.Positive(t, turnAway)
	require.Greater(t, time.Duration(p.TerminationGracePeriodSeconds-turnAway)*time.Second, cfg.Shutdown.Drain+5*time.Second)

	migrate := podOf(t, "deploy/kubernetes/migrate.yaml").Containers[0]
	require.Equal(t, "migrate", migrate.Args[0])
	require.Equal(t, "admin@tcp(db:3306)/toc_%d", started(t, migrate.Env).Store.MySQL.DSN)
}

// A server that is late after a reboot must not leave the unit failed: toc waits for it, and systemd starts toc again as often
// as it takes.
func TestSystemdNeverGivesUp(t *testing.T) {
	unit := make(map[string]string) // by section.key
	section := ""
	for line := range strings.Lines(string(read(t, "deploy/systemd/toc.service"))) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "["); ok {
			section = strings.TrimSuffix(name, "]")
		} else if key, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			unit[section+"."+key] = value
		}
	}
	require.Equal(t, "0", unit["Unit.StartLimitIntervalSec"], "no number of starts is too many")
	for _, key := range []string{"Unit.StartLimitBurst", "Unit.StartLimitAction", "Service.StartLimitInterval", "Service.StartLimitBurst"} {
		require.NotContains(t, unit, key)
	}
	require.Equal(t, "always", unit["Service.Restart"])
	require.NotContains(t, unit, "Service.RestartPreventExitStatus")
	pause, err := time.ParseDuration(unit["Service.RestartSec"] + "s")
	require.NoError(t, err)
	require.True(t, time.Second <= pause && pause <= 10*time.Second, "neither a busy loop nor a long outage")
	require.Contains(t, []string{"", "simple", "exec"}, unit["Service.Type"], "a node that waits has started: no TimeoutStartSec ends it")
	for _, key := range []string{"Unit.Requires", "Unit.BindsTo", "Unit.Requisite", "Service.TimeoutStartSec", "Service.WatchdogSec"} {
		require.NotContains(t, unit, key)
	}
}

// Who stops a node waits longer than the node drains.
func TestSupervisorsWait(t *testing.T) {
	for path, wait := range map[string]string{
		"deploy/systemd/toc.service": `(?m)^TimeoutStopSec=(\d+)$`,
		"docker-compose.yml":         `(?m)^  stop_grace_period: (\d+)s`,
	} {
		found := regexp.MustCompile(wait).FindSubmatch(read(t, path))
		require.NotNil(t, found, path)
		d, err := time.ParseDuration(string(found[1]) + "s")
		require.NoError(t, err)
		require.Greater(t, d, configs.Default().Shutdown.Drain+5*time.Second, path)
	}
}
