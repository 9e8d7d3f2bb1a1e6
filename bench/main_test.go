package main

import (
	"bytes"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/timeoutcenter/toc/bench/peer"
	"github.com/timeoutcenter/toc/bench/work"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	o, err := parse(nil, io.Discard)
	require.NoError(t, err)
	require.Equal(t, work.Full(), o.sizes)
	require.Equal(t, 3, o.repeats)
	require.True(t, o.peers.match("toc/redis/8x1024"))

	o, err = parse([]string{"--drain=700", "--quick", "--rates", "100,200"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, 1, o.repeats)
	require.Equal(t, 700, o.sizes.Drain, "flags win over the preset, wherever it stands")
	require.Equal(t, []int{100, 200}, o.sizes.Rates)
	require.Equal(t, work.Quick().Singles, o.sizes.Singles)
	require.False(t, o.peers.match("toc/redis/8x1024"))
	require.True(t, o.peers.match("toc/redis/8x128/http"))
	require.Equal(t, "bench-peers --drain=700 --quick --rates 100,200", o.command)
}

func TestParseRefuses(t *testing.T) {
	for _, bad := range []string{"--singles=0", "--steady=1ms", "--settle=-1s", "--rates=0", "--rates=x", "--only=dra", "--peers=nobody", "--grown=", "drain", "--repeats=0", "--parked=-1"} {
		_, err := parse([]string{bad}, io.Discard)
		require.Error(t, err, bad)
	}
	_, err := parse([]string{"--help"}, io.Discard)
	require.ErrorIs(t, err, flag.ErrHelp)
}

func TestNamesMatchByTheirParts(t *testing.T) {
	n := names{"lateness", "asynq", "toc/redis"}
	for _, yes := range []string{"lateness-1000", "asynq", "asynq/100ms", "toc/redis/8x128/http", "lateness-1000+1m"} {
		require.True(t, n.match(yes), yes)
	}
	for _, no := range []string{"late", "latenesses", "toc/rediscluster", "toc"} {
		require.False(t, n.match(no), no)
	}
	require.True(t, names(nil).match("anything"))
}

// Each workload has somebody who takes part, and each peer something to do.
func TestEveryoneTakesPart(t *testing.T) {
	busy := map[string]bool{}
	for _, w := range work.Full().All() {
		taking := 0
		for _, p := range peer.All() {
			if w.For(p.Info()) {
				taking++
				busy[p.Info().Name] = true
			}
		}
		require.Positive(t, taking, w.Name)
	}
	for _, p := range peer.All() {
		require.True(t, busy[p.Info().Name], p.Info().Name)
	}
}

func TestOnlyTheProjectsSizesAreFull(t *testing.T) {
	for sizes, want := range map[string]bool{"": true, "--quick": false, "--parked=0,10000000": true} {
		o, err := parse(strings.Fields(sizes), io.Discard)
		require.NoError(t, err)
		for _, w := range o.sizes.All() {
			require.Equal(t, want, o.isFull(w), "%s %s", sizes, w.Name)
		}
	}
}

func TestListNamesAll(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"--list"}, &out))
	for _, name := range append(peerNames(), workloadNames(work.Full())...) {
		require.Contains(t, out.String(), name)
	}
}

func TestSingleRefusesWhatIsNotThere(t *testing.T) {
	require.ErrorContains(t, run(t.Context(), []string{singleCommand, `{"works":["drain"],"peer":"nobody"}`}, io.Discard), "nobody")
	require.Error(t, run(t.Context(), []string{singleCommand, "{"}, io.Discard))
	require.Error(t, run(t.Context(), []string{singleCommand}, io.Discard))
}

// What is parked takes long to park, so the workloads beside it share it.
func TestWorkloadsBesideTheSameParkedTasksShareAProcess(t *testing.T) {
	o, err := parse([]string{"--parked", "0,1000000,10000000", "--only", "drain,crowd,memory"}, io.Discard)
	require.NoError(t, err)
	var got []string
	for _, group := range o.groups() {
		var list []string
		for _, w := range group {
			list = append(list, w.Name)
		}
		got = append(got, strings.Join(list, " "))
	}
	require.Equal(t, []string{"crowd", "drain", "crowd+1m drain+1m", "crowd+10m drain+10m", "memory"}, got)
}

func TestTurnsRotate(t *testing.T) {
	require.Equal(t, "b c a", strings.Join(turn([]string{"a", "b", "c"}, 1), " "))
	require.Equal(t, "a b c", strings.Join(turn([]string{"a", "b", "c"}, 3), " "))
}

func TestCommit(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	write := func(name, text string) {
		t.Helper()
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	o := options{repo: dir}
	require.Equal(t, "not from a repository", o.commit(t.Context()))

	git("init", "-q")
	write("app/app.go", "package app")
	git("add", ".")
	git("commit", "-qm", "the product")
	product := o.commit(t.Context())
	require.Regexp(t, "^[0-9a-f]{7,40}$", product)
	for _, other := range []string{"docs/bench/results.json", "bench/main.go", "app/app_test.go"} {
		write(other, "changed")
		git("add", ".")
		git("commit", "-qm", other)
		write(other, "changed again")
		require.Equal(t, product, o.commit(t.Context()), other)
	}
	write("app/app.go", "package other")
	require.Equal(t, product+"-dirty", o.commit(t.Context()))
	git("commit", "-qam", "the product again")
	require.NotContains(t, o.commit(t.Context()), product)
}
