package clients

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/timeoutcenter/toc/client/dedup"
	"github.com/timeoutcenter/toc/internal/testrig"
)

// A dedup.Dedup has a goroutine that ends with the process.
func TestMain(m *testing.M) {
	testrig.Main(m, goleak.IgnoreAnyFunction("github.com/hashicorp/golang-lru/v2/expirable.NewLRU[...].func1"))
}

// Receivers in Python and in Go that share a Redis do each work once together.
func TestPythonDedup(t *testing.T) {
	python, r := program(t, "python3"), testrig.Redis(t)
	rdb := redis.NewClient(&redis.Options{Addr: r.Addr()})
	defer func() { require.NoError(t, rdb.Close()) }()
	done := dedup.New(dedup.Config{Redis: rdb, Prefix: r.Prefix()})
	require.NoError(t, done.Do(t.Context(), "by go", func(context.Context) error { return nil }))
	cmd := exec.CommandContext(t.Context(), python, "-W", "error", "-m", "unittest", "-v", "redis_test")
	cmd.Dir = "python"
	cmd.Env = append(os.Environ(), "TOC_REDIS="+r.Addr(), "TOC_PREFIX="+r.Prefix(), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, done.Do(t.Context(), "by python", func(context.Context) error { return errors.New("it is done") }))
}
