// Package clients tests the clients in other languages against a real center, and the vectors that all clients share.
package clients

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
)

const token = "0123456789abcdef"

// start starts an embedded center, and returns its URL.
func start(t *testing.T) string {
	cfg := configs.Default()
	cfg.HTTP.Listen, cfg.HTTP.Tokens = "127.0.0.1:0", []string{token}
	cfg.Store.SQLite.Dir = t.TempDir()
	cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = 4, 0
	cfg.BizTypes = nil
	for i, name := range []string{"order_close", "demo", "pulled", "slow", "stopped"} {
		b := configs.DefaultBizType()
		b.ID, b.Name, b.Processor, b.MaxRetries = uint64(i+1), name, configs.ProcessorPull, 1
		if i < 2 {
			b.Processor = configs.ProcessorLog
		}
		cfg.BizTypes = append(cfg.BizTypes, b)
	}
	ready := make(chan string, 1)
	a, err := app.New(cfg, app.WithLogger(slog.New(slog.DiscardHandler)), app.WithReady(func(addr string) { ready <- addr }))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	select {
	case addr := <-ready:
		return "http://" + addr
	case err := <-ended:
		ended <- nil
		require.NoError(t, err)
		return ""
	}
}

// scenarios are what the tests of each language must have passed.
var scenarios = []string{
	"a_life", "by_key", "again_and_past", "it_fires", "batches_and_lists", "dead_and_pause", "refusals", // the API
	"a_worker", "a_worker_extends", "a_worker_stops", "a_worker_is_refused", "leases", // pull
	"a_server_is_not_there", "what_is_safe_goes_on", "bad_answers", // servers that are not well
	"signatures", "refusal_vectors", // testdata/vectors.json
}

// passed finds the name of a test that has passed: "ok a_life" or, of Python, "test_a_life (…) ... ok".
var passed = regexp.MustCompile(`(?m)^(?:ok (\w+)|test_(\w+) .*\.\.\. ok)\r?$`)

// holds runs the tests of a client, which must pass all scenarios.
func holds(t *testing.T, cmd *exec.Cmd) {
	vectors, err := filepath.Abs("testdata/vectors.json")
	require.NoError(t, err)
	center := start(t)
	cmd.Env = append(os.Environ(), "TOC_SERVER="+center, "TOC_TOKEN="+token, "TOC_FAKE="+fake(t, center), "TOC_VECTORS="+vectors, "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	var names []string
	for _, found := range passed.FindAllStringSubmatch(string(out), -1) {
		names = append(names, found[1]+found[2])
	}
	require.Subset(t, names, scenarios, "%s", out)
	t.Logf("%s", out)
}

// program finds a program, or leaves the test out; scripts/deps.sh says so.
func program(t *testing.T, name string) string {
	if testing.Short() {
		t.Skip("-short: this test runs programs of other languages")
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not here", name)
	}
	return path
}

func TestPython(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), program(t, "python3"), "-W", "error", "-m", "unittest", "-v")
	cmd.Dir = "python"
	holds(t, cmd)
}

// The Java client needs nothing but a JDK.
func TestJava(t *testing.T) {
	t.Parallel()
	javac, java, classes := program(t, "javac"), program(t, "java"), t.TempDir()
	if err := exec.CommandContext(t.Context(), javac, "--release", "17", "-version").Run(); err != nil {
		t.Skip("javac is older than 17")
	}
	sources, err := filepath.Glob("java/src/*/java/io/github/timeoutcenter/toc/*.java")
	require.NoError(t, err)
	args := append([]string{"-Xlint:all", "-Werror", "--release", "17", "-d", classes}, sources...)
	out, err := exec.CommandContext(t.Context(), javac, args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	holds(t, exec.CommandContext(t.Context(), java, "-cp", classes, "io.github.timeoutcenter.toc.Tests"))
}

func TestPHP(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), program(t, "php"), "-d", "error_reporting=-1", "-d", "display_errors=stderr", "tests/run.php")
	cmd.Dir = "php"
	holds(t, cmd)
}
