package app

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app/metrics"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
)

// newApp makes an App that is not started.
func newApp(t *testing.T) *App {
	cfg := configs.Default()
	cfg.Store.SQLite.Dir = testrig.MemoryDir(t)
	cfg.Store.Databases, cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = 2, 1, 2
	a, err := New(cfg, WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.store.Close()) })
	return a
}

// The table of docs/operating.md has a row for each kind of fault, with its title, its metric, its line in the log and the time
// until it is shown, and no row for another kind. The page names each line of an end.
func TestDocsHaveEachFault(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/operating.md")
	require.NoError(t, err)
	page := string(text)
	_, table, found := strings.Cut(page, "| what breaks | `toc_degraded` | another metric | the log | after |\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	rows := make(map[string][]string) // the first of a code
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")[1:6]
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if code := strings.Split(cells[1], "`"); len(code) > 1 && rows[code[1]] == nil {
			rows[code[1]] = cells
		}
	}
	codes := make(map[string]bool)
	for _, f := range newApp(t).faults {
		row := rows[f.code]
		require.NotNil(t, row, "docs/operating.md has no row for %s: | %s | `%s` | `%s` | `%s` | %s |", f.code, f.title, f.code, f.metric, f.begins, f.after)
		require.False(t, codes[f.code], "%s is there twice", f.code)
		codes[f.code] = true
		require.Equal(t, f.title, row[0], f.code)
		require.Contains(t, row[2], f.metric, f.code)
		require.Contains(t, row[3], f.begins, f.code)
		require.Equal(t, f.after, row[4], f.code)
		require.Contains(t, page, f.ends, f.code)
		require.False(t, f.component != "" && (f.begins == "" || f.ends == ""), "%s has no lines for the log", f.code)
	}
	for code := range rows {
		require.True(t, codes[code], "docs/operating.md has %s, which is no fault", code)
	}
}

// A fault is shown unless another one hides it, and logged when it begins, when its settings change and when it ends.
func TestFaults(t *testing.T) {
	t.Parallel()
	a := newApp(t)
	var log strings.Builder
	a.opts.logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, attr slog.Attr) slog.Attr {
		if attr.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return attr
	}}))
	there := make(map[string][]trouble)
	kind := func(f fault) {
		f.find = func(*state) []trouble { return there[f.code] }
		a.faults = append(a.faults, &f)
	}
	a.faults = nil
	kind(fault{code: "stop", stops: true})
	kind(fault{code: "down", hides: true, component: "store", level: slog.LevelWarn, begins: "down", ends: "up", again: true})
	kind(fault{code: "slow"})
	shown := func() (list []string) {
		all, _ := status{a}.state().troubles()
		for _, f := range all {
			list = append(list, f.text)
		}
		return list
	}
	logged := func() string {
		log.Reset()
		a.logFaults()
		return log.String()
	}

	require.Empty(t, shown())
	require.Empty(t, logged())
	there["down"] = []trouble{{database: 1, text: "1 is down", facts: []any{"error", "refused"}}}
	there["slow"] = []trouble{{database: 0, text: "0 is slow"}, {database: 0, text: "0 is slower"}, {database: 1, text: "1 is slow"}, {database: -1, text: "all is slow"}}
	require.Equal(t, []string{"1 is down", "0 is slow", "0 is slower", "all is slow"}, shown())
	require.Equal(t, "level=WARN msg=down component=store database=1 error=refused\n", logged())
	require.Empty(t, logged())
	var text strings.Builder
	status{a}.gauges(func(g *metrics.Gauge, value float64, labels ...string) {
		if g == metrics.Degraded || g == metrics.Durable || g == metrics.RedisUp {
			fmt.Fprintln(&text, labels, value)
		}
	})
	require.ElementsMatch(t, []string{"[down 1] 1", "[slow 0] 2", "[slow ] 1"}, strings.Split(strings.TrimSpace(text.String()), "\n"),
		"what is not known has no gauge")
	there["down"][0].text = "1 is down otherwise"
	require.Contains(t, logged(), "msg=down")
	there["stop"] = []trouble{{database: -1, text: "stops"}}
	require.Equal(t, []string{"stops"}, shown())
	there["down"] = nil
	require.Equal(t, "level=INFO msg=up component=store database=1\n", logged(), "what hides a fault does not end it")
	require.Empty(t, logged())
}
