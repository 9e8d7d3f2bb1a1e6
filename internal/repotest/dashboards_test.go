package repotest

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// A dashboard can be read without its author: each panel says what good looks like, in which unit, and above what to worry.
// app asks a real Prometheus what the panels ask.
func TestDashboards(t *testing.T) {
	files, err := filepath.Glob("deploy/grafana/*.json")
	require.NoError(t, err)
	require.Len(t, files, 4)
	for _, name := range files {
		var d struct {
			UID, Title, Description string
			SchemaVersion           int
			Panels                  []struct {
				ID                       int
				Type, Title, Description string
				Datasource               struct{ UID string }
				Targets                  []struct{ Expr string }
				GridPos                  struct{ X, Y, W, H int }
				FieldConfig              struct {
					Defaults struct {
						Unit       string
						Thresholds struct{ Steps []any }
					}
				}
			}
		}
		require.NoError(t, json.Unmarshal(read(t, name), &d), name)
		require.Equal(t, filepath.Base(name), strings.TrimPrefix(d.UID, "toc-")+".json")
		require.NotEmpty(t, d.Title)
		require.NotEmpty(t, d.Description)
		require.Equal(t, 41, d.SchemaVersion, "that of the Grafana in docker-compose.yml")
		seen := make(map[int]bool)
		for _, p := range d.Panels {
			where := d.Title + ": " + p.Title
			require.False(t, seen[p.ID], where)
			seen[p.ID] = true
			require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, where)
			if p.Type == "row" {
				continue
			}
			require.NotEmpty(t, p.Description, where)
			require.NotEmpty(t, p.FieldConfig.Defaults.Unit, where)
			require.NotEmpty(t, p.FieldConfig.Defaults.Thresholds.Steps, where)
			require.Equal(t, "${datasource}", p.Datasource.UID, where)
			require.NotEmpty(t, p.Targets, where)
			if p.Type == "stat" {
				require.Contains(t, p.Title, "(good: ", where)
			}
		}
	}
}

// Grafana finds its files where docker-compose.yml mounts them, and Prometheus its. Nothing is published to other machines.
func TestStack(t *testing.T) {
	var compose struct {
		Services map[string]struct{ Volumes, Command, Ports []string }
	}
	require.NoError(t, yaml.Unmarshal(read(t, "docker-compose.yml"), &compose))
	for name, s := range compose.Services {
		for _, port := range s.Ports {
			require.True(t, strings.HasPrefix(port, "127.0.0.1:"), "%s publishes %s", name, port)
		}
	}
	var providers struct {
		Providers []struct{ Options struct{ Path string } }
	}
	require.NoError(t, yaml.Unmarshal(read(t, "deploy/grafana/provisioning/dashboards/toc.yml"), &providers))
	require.Contains(t, compose.Services["grafana"].Volumes, "./deploy/grafana:"+providers.Providers[0].Options.Path+":ro")
	var sources struct {
		Datasources []struct{ URL string }
	}
	require.NoError(t, yaml.Unmarshal(read(t, "deploy/grafana/provisioning/datasources/prometheus.yml"), &sources))
	require.Equal(t, "http://prometheus:9090", sources.Datasources[0].URL)
	require.Contains(t, compose.Services["prometheus"].Volumes, "./deploy/prometheus:/etc/prometheus/toc:ro")
	require.Contains(t, compose.Services["prometheus"].Command, "--config.file=/etc/prometheus/toc/prometheus.yml")
}
