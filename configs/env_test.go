package configs

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// fresh is a loader of a file toc.yaml that has read nothing yet.
func fresh() *loader {
	return &loader{path: "toc.yaml", config: base(), sources: map[string]string{}, fromFile: map[string]bool{}}
}

// variables are the settings that have one.
func (l *loader) variables() []setting {
	return slices.DeleteFunc(settings(l.tree(), ""), setting.isSection)
}

// Every setting has an environment variable of its own, and that one sets it and
// nothing else.
func TestEveryKeyHasItsVariable(t *testing.T) {
	all := fresh().variables()
	require.Len(t, all, 54)
	seen := map[string]string{}
	for _, s := range all {
		require.NotContains(t, seen, s.env(), "two keys would share it")
		seen[s.env()] = s.key
		require.False(t, foreign.MatchString(s.env()+"=x"), s.env())
	}
	require.Equal(t, "http.listen", seen["TOC_HTTP_LISTEN"])
	require.Equal(t, "store.tables_per_database", seen["TOC_STORE_TABLES_PER_DATABASE"])

	rapid.Check(t, func(t *rapid.T) {
		i := rapid.IntRange(0, len(all)-1).Draw(t, "setting")
		text, want := drawValue(t, all[i].value.Type())
		l, expected := fresh(), fresh()
		l.readEnv([]string{all[i].env() + "=" + text})
		require.Empty(t, l.problems)
		require.Equal(t, map[string]string{all[i].key: all[i].env()}, l.sources)
		expected.variables()[i].value.Set(reflect.ValueOf(want))
		require.Equal(t, expected.config, l.config)
	})
}

// drawValue draws a value of a setting's type, and its text in the environment.
func drawValue(t *rapid.T, typ reflect.Type) (string, any) {
	switch {
	case typ == reflect.TypeFor[time.Duration]():
		d := time.Duration(rapid.Int64().Draw(t, "duration"))
		return d.String(), d
	case typ.Kind() == reflect.Int:
		n := rapid.Int().Draw(t, "number")
		return fmt.Sprint(n), n
	case typ.Kind() == reflect.Float64:
		n := rapid.Float64().Draw(t, "number")
		return fmt.Sprint(n), n
	case typ.Kind() == reflect.Bool:
		is := rapid.Bool().Draw(t, "is")
		return fmt.Sprint(is), is
	case typ.Kind() == reflect.Slice:
		words := rapid.SliceOf(rapid.StringMatching(`[!-+--~]+`)).Draw(t, "words")
		return strings.Join(words, ","), words
	default:
		text := rapid.StringMatching(`[ -~]*`).Draw(t, "text")
		return text, text
	}
}

// Any tree of texts of one line that is written as YAML and read back is the same tree.
func TestTreeRoundTripsThroughYAML(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		drawn := fresh()
		for _, s := range drawn.variables() {
			_, value := drawValue(t, s.value.Type())
			s.value.Set(reflect.ValueOf(value))
		}
		want := drawn.config
		want.Redis.Password = rapid.StringOf(rapid.RuneFrom([]rune("0189 yesno:#'\"\\{}[],&*!|>%@`~\täß✓-.e_+x"))).Draw(t, "password")
		want.BizTypes = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) BizType {
			b := DefaultBizType()
			b.ID = rapid.Uint64().Draw(t, "id")
			b.Name = rapid.StringMatching(`[!-~]*`).Draw(t, "name")
			b.MaxRetries = rapid.Int().Draw(t, "max_retries")
			b.Cuts = rapid.Int().Draw(t, "cuts")
			b.Backoff.Min = time.Duration(rapid.Int64().Draw(t, "backoff.min"))
			b.Webhook.Secret = rapid.StringMatching(`[ -~]*`).Draw(t, "secret")
			return b
		}), 1, 4).Draw(t, "biz_types")

		read := fresh()
		require.True(t, read.readYAML([]byte(render(want))))
		require.Empty(t, read.problems)
		require.Equal(t, want, read.config)
	})
}

func TestForeignVariablesAreLeftAlone(t *testing.T) {
	_, err := Load("", []string{
		"PATH=/bin", "OTHER_TOC_HTTP_LISTN=x", "TOCSIN=x", "",
		"TOC_SERVER=http://x", "TOC_TOKEN=x", "TOC_TEST_MYSQL=x",
		// Kubernetes, for services called toc, toc-redis and toc-http
		"TOC_SERVICE_HOST=10.0.0.1", "TOC_SERVICE_PORT=8080", "TOC_SERVICE_PORT_HTTP=8080",
		"TOC_PORT=tcp://10.0.0.1:8080", "TOC_PORT_8080_TCP=tcp://10.0.0.1:8080", "TOC_PORT_8080_TCP_ADDR=10.0.0.1",
		"TOC_REDIS_SERVICE_HOST=10.0.0.2", "TOC_REDIS_SERVICE_PORT=6379", "TOC_REDIS_SERVICE_PORT_RESP=6379",
		"TOC_REDIS_PORT=tcp://10.0.0.2:6379", "TOC_REDIS_PORT_6379_TCP=tcp://10.0.0.2:6379", "TOC_REDIS_PORT_6379_TCP_PROTO=tcp",
	})
	require.NoError(t, err)
}

func TestUnknownVariables(t *testing.T) {
	for pair, want := range map[string]string{
		"TOC_HTTP_LISTN=x":                       "TOC_HTTP_LISTN: unknown setting; did you mean TOC_HTTP_LISTEN?",
		"TOC_STORE_TABLES_PER_DATABASES=32":      "did you mean TOC_STORE_TABLES_PER_DATABASE?",
		"TOC_LISTEN=:80":                         "TOC_LISTEN: unknown setting; did you mean TOC_HTTP_LISTEN?",
		"TOC_REDIS_SWEEP-AFTER=1s":               "did you mean TOC_REDIS_SWEEP_AFTER?",
		"TOC_HTTP_PORT=80":                       "TOC_HTTP_PORT: unknown setting",
		"TOC_HTTP=x":                             "TOC_HTTP: unknown setting",
		"TOC_=x":                                 "TOC_: unknown setting",
		"TOC_BIZ_TYPES=[]":                       "TOC_BIZ_TYPES: biz_types are given by the file only",
		"TOC_SCAN_SCHEDULE=\xff":                 "scan.schedule: is not UTF-8; write plain text (TOC_SCAN_SCHEDULE)",
		"TOC_QUEUE_CAPACITY=":                    `queue.capacity: "" is not a whole number; write 10 (TOC_QUEUE_CAPACITY)`,
		"TOC_HTTP_CONSOLE=yes":                   `http.console: "yes" is not true or false; write true (TOC_HTTP_CONSOLE)`,
		"TOC_QUEUE_CAPACITY=9999999999999999999": "queue.capacity: ",
		"TOC_SCAN_LOOKAHEAD=10":                  `scan.lookahead: "10" is not a duration; write 10s, 1m30s, 720h or 0 (TOC_SCAN_LOOKAHEAD)`,
	} {
		_, err := Load("", []string{pair})
		require.Len(t, problemsOf(t, err), 1, pair)
		require.ErrorContains(t, err, want, pair)
	}
}

// A mistake in a variable's list is not looked for in the file's.
func TestSourceOfAListIsTheVariable(t *testing.T) {
	_, err := Load(write(t, "http:\n  tokens:\n    - of-the-file-0123\n"), []string{"TOC_HTTP_TOKENS=short"})
	require.ErrorContains(t, err, "http.tokens[0]: has fewer than 16 characters")
	require.ErrorContains(t, err, "(TOC_HTTP_TOKENS)")
}
