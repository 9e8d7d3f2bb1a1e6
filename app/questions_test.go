package app_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// question is an expression that Prometheus is asked.
type question struct{ from, expr string }

// dashboard is a file of Grafana's, as far as it asks.
type dashboard struct {
	Title      string
	Panels     []panel
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
	Annotations struct{ List []struct{ Name, Expr string } }
}

type panel struct {
	Title   string
	Targets []struct{ Expr string }
	Panels  []panel // of a row that is folded
}

// questions are those of all dashboards and alerts, with values for the variables.
func questions(t *testing.T, values map[string]string) (list []question) {
	files, err := filepath.Glob("../deploy/grafana/*.json")
	require.NoError(t, err)
	require.Len(t, files, 4)
	for _, name := range files {
		var d dashboard
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &d), name)
		list = append(list, d.questions(t)...)
	}
	for i, q := range list {
		list[i].expr = regexp.MustCompile(`\$(\w+)`).ReplaceAllStringFunc(q.expr, func(name string) string {
			value, ok := values[name[1:]]
			require.True(t, ok, "%s asks for %s", q.from, name)
			return value
		})
	}
	return append(list, alertQuestions(t)...)
}

func (d dashboard) questions(t *testing.T) (list []question) {
	ask := func(from, expr string) {
		expr, _, _ = strings.Cut(expr, " or ") // what stands behind it is a 0 to draw where all is well
		list = append(list, question{d.Title + ": " + from, expr})
	}
	var walk func([]panel)
	walk = func(panels []panel) {
		for _, p := range panels {
			for _, target := range p.Targets {
				ask(p.Title, target.Expr)
			}
			walk(p.Panels)
		}
	}
	walk(d.Panels)
	for _, a := range d.Annotations.List {
		ask(a.Name, a.Expr)
	}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`).FindStringSubmatch(v.Definition)
		require.NotNil(t, m, "%s: %s", d.Title, v.Definition)
		ask("$"+v.Name, fmt.Sprintf("count by (%s) (%s)", m[2], m[1]))
	}
	return list
}

// alertQuestions are what the alerts compare: what is no number on either side.
func alertQuestions(t *testing.T) (list []question) {
	text, err := os.ReadFile("../deploy/prometheus/rules.yml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	for _, rule := range file.Groups[0].Rules {
		for _, part := range regexp.MustCompile(` (?:(?:and|unless|or)(?: on \([^)]*\))?|<|>|==) `).Split(rule.Expr, -1) {
			if _, err := strconv.ParseFloat(part, 64); err == nil {
				continue
			}
			if inner, ok := strings.CutPrefix(part, "absent("); ok {
				part = strings.TrimSuffix(inner, ")")
			}
			list = append(list, question{rule.Alert, part})
		}
	}
	return list
}

// hasAnswer tells whether Prometheus answers with a number. A refusal of the question fails the test.
func hasAnswer(t *testing.T, server *testrig.PrometheusServer, q question) bool {
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: await.Patience}
	res, err := c.Get("http://" + server.Addr() + "/api/v1/query?query=" + url.QueryEscape(q.expr))
	require.NoError(t, err)
	defer res.Body.Close()
	var answer struct {
		Error string
		Data  struct{ Result []struct{ Value [2]any } }
	}
	require.NoError(t, json.NewDecoder(res.Body).Decode(&answer))
	require.Empty(t, answer.Error, "%q", q)
	for _, one := range answer.Data.Result {
		if v, err := strconv.ParseFloat(one.Value[1].(string), 64); err == nil && !math.IsNaN(v) {
			return true
		}
	}
	return false
}
