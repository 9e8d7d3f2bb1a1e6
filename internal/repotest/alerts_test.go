package repotest

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/timeoutcenter/toc/app/metrics"
)

const runbook = "https://github.com/timeoutcenter/toc/blob/main/docs/operating.md#"

// Each alert asks for metrics that exist, has a test, and points to its paragraph in docs/operating.md.
func TestAlerts(t *testing.T) {
	known := make(map[string]bool)
	m := metrics.New()
	m.Watch(func(metrics.Set) {})
	descs := make(chan *prometheus.Desc)
	go func() { m.Collector().Describe(descs); close(descs) }()
	for d := range descs {
		_, name, _ := strings.Cut(d.String(), `fqName: "`)
		name, _, _ = strings.Cut(name, `"`)
		known[name], known[name+"_bucket"] = true, true
	}
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(read(t, "deploy/prometheus/rules.yml"), &rules))
	page, tests := string(read(t, "docs/operating.md")), string(read(t, "deploy/prometheus/rules_test.yml"))
	names := regexp.MustCompile(`\btoc_\w+`)
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			require.NotEmpty(t, names.FindString(r.Expr), r.Alert)
			for _, name := range names.FindAllString(r.Expr, -1) {
				require.True(t, known[name], "%s asks for %s, which does not exist", r.Alert, name)
			}
			require.Contains(t, page, "\n### "+r.Alert+"\n")
			require.Equal(t, runbook+strings.ToLower(r.Alert), r.Annotations["runbook"])
			require.NotEmpty(t, r.Annotations["summary"], r.Alert)
			require.Contains(t, tests, "alertname: "+r.Alert+"\n")
		}
	}
	require.Len(t, regexp.MustCompile(`(?m)^### Toc`).FindAllString(page, -1), len(rules.Groups[0].Rules), "a paragraph without its alert")
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return text
}
