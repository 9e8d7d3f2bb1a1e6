package redistimer_test

import (
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/timeoutcenter/toc/internal/testrig"
)

func TestMain(m *testing.M) {
	logging.Disable() // of go-redis, as cmd/toc does
	testrig.SideBySide(8)
	testrig.Main(m)
}
