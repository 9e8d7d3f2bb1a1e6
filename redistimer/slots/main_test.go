package slots_test

import (
	"testing"

	"github.com/timeoutcenter/toc/internal/testrig"
)

func TestMain(m *testing.M) { testrig.Main(m) }
