package configs

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "write the golden files anew")

// write makes a configuration file of its own for the test.
func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "toc.yaml")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func TestNoFileIsTheDefault(t *testing.T) {
	c, err := Load("", nil)
	require.NoError(t, err)
	require.Equal(t, Default(), c)
	require.Empty(t, c.Warnings())
}

func TestEmbeddedFileSaysWhatNoFileMeans(t *testing.T) {
	c, err := Load("embedded.yaml", nil)
	require.NoError(t, err)
	require.Equal(t, Default(), c)

	var said map[string]any
	data, err := os.ReadFile("embedded.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(data, &said))
	require.Equal(t, keysIn(settingsMap(t, Default())), keysIn(said), "every key is shown")
}

// settingsMap is a Config as generic YAML.
func settingsMap(t *testing.T, c Config) map[string]any {
	t.Helper()
	var m map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(c.String()), &m))
	return m
}

// keysIn lists the keys in a map, those of the first biz_type included.
func keysIn(m map[string]any) []string {
	var keys []string
	for name, value := range m {
		keys = append(keys, name)
		if list, ok := value.([]any); ok && name == "biz_types" {
			value = list[0]
		}
		if section, ok := value.(map[string]any); ok {
			for _, k := range keysIn(section) {
				keys = append(keys, name+"."+k)
			}
		}
	}
	slices.Sort(keys)
	return keys
}

func TestClusterFileLoads(t *testing.T) {
	c, err := Load("cluster.yaml", nil)
	require.NoError(t, err)
	require.Equal(t, DriverMySQL, c.Store.Driver)
	require.Equal(t, 8*1024, c.Store.Layout())
	require.Equal(t, 256, c.Cluster.Partitions)
	require.Equal(t, []string{"127.0.0.1:6379"}, c.Redis.Addrs)
	require.Equal(t, "root@tcp(127.0.0.1:3306)/toc_%d", c.Store.MySQL.DSN)
	require.Empty(t, c.Warnings())
}

// The redis-mode type that the example shows in comments can be taken as it is.
func TestClusterFileLoadsWithItsRedisType(t *testing.T) {
	data, err := os.ReadFile("cluster.yaml")
	require.NoError(t, err)
	comment := regexp.MustCompile(`(?m)^  # (- id|master|  )`)
	c, err := Load(write(t, comment.ReplaceAllString(string(data), "  $1")), nil)
	require.NoError(t, err)
	require.Len(t, c.BizTypes, 3)
	want := DefaultBizType()
	want.ID, want.Name, want.Topic, want.Mode, want.Processor = 3, "seat_hold", "seat_hold", ModeRedis, ProcessorWebhook
	want.Webhook.URL, want.Visibility = "http://127.0.0.1:9000/seat_hold", time.Minute
	require.Equal(t, want, c.BizTypes[2])
	require.Equal(t, Default().Redis.Master, c.Redis.Master)
}

// The stack of docker-compose.yml sets its toc by the environment.
func TestComposeEnvironmentLoads(t *testing.T) {
	data, err := os.ReadFile("../docker-compose.yml")
	require.NoError(t, err)
	var compose struct {
		Toc struct {
			Environment map[string]string
		} `yaml:"x-toc"`
	}
	require.NoError(t, yaml.Unmarshal(data, &compose))
	var environ []string
	for name, value := range compose.Toc.Environment {
		environ = append(environ, name+"="+os.Expand(value, func(expr string) string { // ${NAME:-default}, or ${NAME:?error}
			if strings.HasPrefix(expr, "TOC_TOKEN:?") {
				return "drawn-into-the-file"
			}
			_, value, _ := strings.Cut(expr, ":-")
			return value
		}))
	}
	c, err := Load("../deploy/stack/toc.yaml", environ)
	require.NoError(t, err)
	require.Equal(t, "0.0.0.0:8080", c.HTTP.Listen)
	require.Equal(t, []string{"drawn-into-the-file"}, c.HTTP.Tokens)
	require.Equal(t, "root:local-password@tcp(mysql:3306)/toc_%d", c.Store.MySQL.DSN)
	require.Empty(t, c.Warnings())
}

func TestEnvOverFileOverDefault(t *testing.T) {
	path := write(t, `
store: {retention: 1h, tables_per_database: 16}
queue: {capacity: 7}
http: {tokens: [of-the-file-0123]}
`)
	c, err := Load(path, []string{"TOC_QUEUE_CAPACITY=8", "TOC_HTTP_TOKENS=first-0123456789, second-0123456789", "PATH=/bin"})
	require.NoError(t, err)
	require.Equal(t, 8, c.Queue.Capacity, "env over file")
	require.Equal(t, []string{"first-0123456789", "second-0123456789"}, c.HTTP.Tokens, "a list is replaced, not joined")
	require.Equal(t, time.Hour, c.Store.Retention, "file over default")
	require.Equal(t, 8, c.Store.Databases, "default, in a section that the file begins")
	require.Equal(t, 128, c.Cluster.Partitions, "follows the layout")
	require.Equal(t, Default().BizTypes, c.BizTypes)

	c, err = Load(path, []string{"TOC_HTTP_TOKENS="})
	require.NoError(t, err)
	require.Empty(t, c.HTTP.Tokens)
}

func TestBizTypeElementsAreLaidOverTheirDefault(t *testing.T) {
	c, err := Load(write(t, `
biz_types:
  - {id: 18446744073709551615, name: plain}
  - {id: 2, name: hook, webhook: {url: "https://example.com/x"}, max_retries: 0, backoff: {min: 5s}, topic: t}
  - {id: 3, name: slow, processor: my_go, timeout: 5m, horizon: 0}
`), nil)
	require.NoError(t, err)
	require.Equal(t, []BizType{
		{ID: 18446744073709551615, Name: "plain", Mode: "scan", Processor: "log", Workers: 64, Timeout: 30 * time.Second,
			OnExpire: "dead", Coalesce: "none", Kafka: KafkaOut{Key: KeyBizID}, Pull: Pull{TTR: time.Minute, MaxInFlight: 10_000}, MaxRetries: 16, Cuts: 3, Backoff: Backoff{Min: time.Second, Max: 10 * time.Minute}, Topic: "plain", Horizon: 30 * time.Second, Visibility: time.Minute},
		{ID: 2, Name: "hook", Mode: "scan", Processor: "webhook", Webhook: Webhook{URL: "https://example.com/x"}, Workers: 64, Timeout: 30 * time.Second,
			OnExpire: "dead", Coalesce: "none", Kafka: KafkaOut{Key: KeyBizID}, Pull: Pull{TTR: time.Minute, MaxInFlight: 10_000}, MaxRetries: 0, Cuts: 3, Backoff: Backoff{Min: 5 * time.Second, Max: 10 * time.Minute}, Topic: "t", Horizon: 30 * time.Second, Visibility: time.Minute},
		{ID: 3, Name: "slow", Mode: "scan", Processor: "my_go", Workers: 64, Timeout: 5 * time.Minute,
			OnExpire: "dead", Coalesce: "none", Kafka: KafkaOut{Key: KeyBizID}, Pull: Pull{TTR: time.Minute, MaxInFlight: 10_000}, MaxRetries: 16, Cuts: 3, Backoff: Backoff{Min: time.Second, Max: 10 * time.Minute}, Topic: "slow", Horizon: 0, Visibility: 5 * time.Minute},
	}, c.BizTypes)
}

// A zero that is written is no default.
func TestZerosAreRefused(t *testing.T) {
	path := write(t, "store: {slow_after: 0s}\nbiz_types:\n  - {id: 1, name: a, processor: pull, pull: {ttr: 0s, max_in_flight: 0}}\n")
	_, err := Load(path, nil)
	require.EqualError(t, err, "store.slow_after: 0s is too little; write 1s or more ("+path+":1)\n"+
		"biz_types[0].pull.ttr: 0s is out of range; write 100ms to 24h ("+path+":3)\n"+
		"biz_types[0].pull.max_in_flight: 0 is too little; write 1 or more ("+path+":3)")
	_, err = Load("", []string{"TOC_STORE_SLOW_AFTER=0s"})
	require.ErrorContains(t, err, "TOC_STORE_SLOW_AFTER")
}

func TestYAMLIsReadAsWritten(t *testing.T) {
	c, err := Load(write(t, `
redis:
store: # a section whose keys are all commented out
#  driver: mysql
http: {tokens: [0123456789012345, 0x12345678901234, "1234567890.123456"]}
cluster: {partitions: 0}
biz_types:
  - &one {id: 1, name: one, workers: 3, timeout: 10s}
  - &two {<<: *one, id: 2, name: two, timeout: 20s}
  - &three {<<: [{cuts: 4}, *two, *one, *three, {mode: redis, cuts: 5}], id: 3, name: three}
`), nil)
	require.NoError(t, err)
	require.Equal(t, []string{"0123456789012345", "0x12345678901234", "1234567890.123456"}, c.HTTP.Tokens)
	require.Equal(t, 256, c.Cluster.Partitions)
	require.Equal(t, 3, c.BizTypes[1].Workers)
	require.Equal(t, 20*time.Second, c.BizTypes[1].Timeout)
	three := DefaultBizType()
	three.ID, three.Name, three.Workers, three.Timeout, three.Mode, three.Cuts = 3, "three", 3, 20*time.Second, ModeRedis, 4
	require.Equal(t, Config{BizTypes: []BizType{three}}.WithDefaults().BizTypes[0], c.BizTypes[2], "a merge that merges, and itself")
}

func TestAliasesDoNotRepeatMistakesWithoutEnd(t *testing.T) {
	var keys strings.Builder
	for i := range 500 {
		fmt.Fprintf(&keys, ", wrong%d: 1", i)
	}
	_, err := Load(write(t, "biz_types:\n  - &x {id: 1, name: a"+keys.String()+"}\n"+strings.Repeat("  - *x\n", 1000)), nil)
	require.Len(t, problemsOf(t, err), 1500)
}

func TestDocumentsThatAreNone(t *testing.T) {
	for name, test := range map[string]struct{ content, want string }{
		"empty":              {"", "holds no settings; write some, or start without a file to get the embedded default"},
		"comments":           {"# http:\n#   listen: x\n", "holds no settings"},
		"null":               {"~\n", "holds no settings"},
		"nothing in it":      {"{}\n", "holds no settings"},
		"markers":            {"---\n...\n", "holds no settings"},
		"a list":             {"- a\n", "is not a configuration; write its keys: node, http, store"},
		"a word":             {"secret\n", "is not a configuration"},
		"two documents":      {"queue: {capacity: 1}\n---\nqueue: {capacity: 2}\n", "line 2: a second YAML document begins; write one only"},
		"syntax":             {"queue:\n  capacity: 1\n bad\n", "line 2: "},
		"syntax, second doc": {"queue: {capacity: 1}\n---\n\tx: [\n", "line 3: "},
		"tab":                {"queue:\n\tcapacity: 1\n", "line 2: found character that cannot start any token; indent with spaces, not tabs"},
		"unknown anchor":     {"queue: *x\n", "unknown anchor 'x' referenced"},
		"larger than any":    {strings.Repeat("#", maxFile+1), "is larger than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, test.content)
			_, err := Load(path, nil)
			require.ErrorContains(t, err, path)
			require.ErrorContains(t, err, test.want)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	_, err := Load(missing, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, missing)

	_, err = Load(t.TempDir(), nil)
	require.ErrorContains(t, err, "is a directory")
}

// Every mistake is told at once, with its key, its place and what is right.
func TestProblemsGolden(t *testing.T) {
	for _, name := range []string{"reading", "values"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata", name+".yaml")
			_, err := Load(path, []string{
				"TOC_HTTP_LISTN=x", "TOC_ZZZ=x", "TOC_BIZ_TYPES=x", "TOC_BIZ_TYPES_0_NAME=x",
				"TOC_QUEUE_CAPACITY=0", "TOC_SCAN_BATCH=many", "TOC_SHUTDOWN_DRAIN=", "TOC_HTTP_TOKENS=this-one-is-fine,,HU SH",
			})
			require.Error(t, err)
			require.NotRegexp(t, `\b(HUSH|HU|SH)\b`, err.Error(), "no secret is shown")
			golden(t, name+".golden", err.Error()+"\n")
		})
	}
}
