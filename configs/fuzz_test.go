package configs

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// block finds a text of several lines in YAML; its leading white space is lost.
var block = regexp.MustCompile(`(?m): \|[0-9+-]*$`)

// FuzzLoad feeds any file and any one variable. Loading never panics; what it
// accepts is valid, prints as a file, and still means the same when it is
// completed again.
func FuzzLoad(f *testing.F) {
	for _, name := range []string{"embedded.yaml", "cluster.yaml", "testdata/reading.yaml", "testdata/values.yaml"} {
		data, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(data, "TOC_HTTP_LISTEN=:0")
	}
	for _, seed := range []struct{ file, pair string }{
		{"", ""},
		{"~", "TOC_"},
		{"{}", "TOC_HTTP_TOKENS=a,b"},
		{"queue: {capacity: 1}\n---\n{}", "TOC_SCAN_SCHEDULE=TZ="},
		{"queue: {capacity: 1}", "TOC_SCAN_SCHEDULE=TZ= ,"},
		{"queue: {capacity: 1}", "TOC_SCAN_SCHEDULE=CRON_TZ=UTC @every 1ns"},
		{"queue: {capacity: 1}", "TOC_STORE_MYSQL_DSN=@(/%d"},
		{"queue: {capacity: 1}", "TOC_STORE_MYSQL_DSN=@(/%\x88"},
		{"store: {driver: mysql, mysql: {dsn: 'a:b@tcp(c)/d_%d?x=%'}}", "TOC_STORE_DATABASES=-9223372036854775808"},
		{"store: {databases: 1, tables_per_database: 8192}", "TOC_CLUSTER_PARTITIONS=8192"},
		{"&a {<<: *a}", "TOC_QUEUE_CAPACITY=1"},
		{"queue: &a\n  capacity: *a", ""},
		{"queue: &a [*a]\nbiz_types: *a", ""},
		{"biz_types: [{id: 1, name: a, topic: '', webhook: &w {url: 'http://[::1]:80/%zz'}}, {id: 2, name: b, webhook: *w}]", ""},
		{"? {a: b}\n: c", ""},
		{"\xff\xfeh\x00", ""},
		{"%YAML 1.1\n--- !!map {queue: !!map {capacity: !!int 1}}", ""},
		{"biz_types:\n- {id: 1, name: x, secret: !!binary aGk=}\n- <<: [{}, {id: 3}]\n  name: y", ""},
	} {
		f.Add([]byte(seed.file), seed.pair)
	}
	f.Fuzz(func(t *testing.T, data []byte, pair string) {
		c, _, err := parse("toc.yaml", data, []string{pair})
		if err != nil {
			require.NotEmpty(t, strings.TrimSpace(err.Error()))
			return
		}
		require.NoError(t, c.Validate())
		require.Equal(t, c, c.WithDefaults())
		c.Warnings()

		if block.MatchString(render(c)) {
			return
		}
		again := fresh()
		require.True(t, again.readYAML([]byte(render(c))))
		require.Empty(t, again.problems)
		require.Equal(t, c, again.config)
	})
}
