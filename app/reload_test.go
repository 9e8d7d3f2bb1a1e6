package app_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// A leaked token is removed while the center runs, and a refused file is reported while it is refused. Before,
// each took a restart, and the refusal was one line of the log.
func TestTokensAreReadAgainAndRefusalsTold(t *testing.T) {
	t.Parallel()
	dir := testrig.MemoryDir(t)
	secrets, file := filepath.Join(dir, "tokens"), filepath.Join(dir, "toc.yaml")
	put := func(path, text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	content := fmt.Sprintf("http: {listen: 127.0.0.1:0, tokens_file: %s}\nstore: {databases: 1, tables_per_database: 1, sqlite: {dir: %s}}\nbiz_types: [{id: 1, name: a, processor: log}]", secrets, filepath.Join(dir, "data"))
	put(secrets, "first-0123456789\n")
	put(file, content)
	cfg, err := configs.Load(file, nil)
	require.NoError(t, err)
	c := run(t, cfg, app.WithConfigFile(file, nil))
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: await.Patience}
	status := func(token string) int {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+c.Addr()+"/v1/cluster", nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := web.Do(r)
		require.NoError(t, err)
		answer.Body.Close()
		return answer.StatusCode
	}
	require.Equal(t, 200, status("first-0123456789"))
	require.Equal(t, 401, status("second-0123456789"))

	put(secrets, "first-0123456789\nsecond-0123456789\n")
	await.That(t, func() bool { return status("second-0123456789") == 200 }, "status('second-0123456789') == 200")
	require.Equal(t, 200, status("first-0123456789"))
	put(secrets, "second-0123456789\n")
	await.That(t, func() bool { return status("first-0123456789") == 401 }, "status('first-0123456789') == 401")
	require.Equal(t, 200, status("second-0123456789"))

	put(secrets, "\n") // no token would be needed any more
	awaitTrouble(t, c, "configuration")
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+c.Addr()+"/readyz", nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer second-0123456789")
	answer, err := web.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), "the configuration file is refused; the one before stays in force: http.tokens_file: is empty")
	require.Equal(t, 200, status("second-0123456789"))
	require.Equal(t, 401, status(""))
	put(secrets, "second-0123456789\n")
	awaitNoTrouble(t, c, "configuration")
}
