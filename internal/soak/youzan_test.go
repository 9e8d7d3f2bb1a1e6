package soak_test

import (
	"cmp"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
)

// soakYouzan has a program that knows nothing of this one drive the commands of Youzan's delay queue at three nodes.
func soakYouzan(t *testing.T, a arena, _ uint64, last time.Duration) {
	consul := testrig.StartConsul(t)
	f := newFleet(t, sharedServers(t, consul.Addr(), "toc"), a.nodes, pulled)
	f.startAll()
	f.awaitWhole()
	args := []string{"testdata/youzan.py", strconv.FormatFloat(min(time.Minute, cmp.Or(last, 5*time.Second)).Seconds(), 'f', -1, 64), strings.Join(bizTypes, ",")}
	for _, n := range f.nodes {
		args = append(args, n.url())
	}
	out, err := exec.CommandContext(t.Context(), "python3", args...).CombinedOutput()
	t.Logf("%s", out)
	require.NoError(t, err)
	f.stopAll()
}
