package repotest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The figures of README and docs/benchmarks.md come from docs/bench/results.json. Those of toc must be of a program that is not much
// older than this one: at most 200 commits that touch the product's Go code. A clone without the history cannot say so.
func TestFiguresAreOfTheProgramAsItIs(t *testing.T) {
	const most = 200
	text, err := os.ReadFile("docs/bench/results.json")
	require.NoError(t, err)
	figures, err := figuresOf(text)
	require.NoError(t, err)
	require.NotEmpty(t, figures)
	if shallow, err := git("rev-parse", "--is-shallow-repository"); err != nil || shallow != "false" {
		t.Skip("the age of the figures in docs/bench/results.json: this clone has no full history")
	}
	var old []string
	for _, commit := range slices.Sorted(maps.Keys(figures)) {
		works := strings.Join(figures[commit], ",")
		behind, err := productCommitsSince(commit)
		require.NoError(t, err, "%s (%s) is no commit of this history", commit, works)
		if behind > most {
			old = append(old, fmt.Sprintf("%s, %d commits ago: make bench-peers ARGS=\"--merge --peers toc --only %s\"", commit, behind, works))
		}
	}
	require.Empty(t, old, "figures of toc in docs/bench/results.json are more than %d product commits old.\nMeasure them again, and update README.md and docs/benchmarks.md:\n%s",
		most, strings.Join(old, "\n"))
}

// figuresOf gives the workloads of toc by the commit that they were measured at.
func figuresOf(results []byte) (map[string][]string, error) {
	var r struct {
		Sessions []struct {
			Work      string
			Stretches []struct {
				Commit string
				Peers  []string
			}
		}
	}
	err := json.Unmarshal(results, &r)
	figures := map[string][]string{}
	for _, s := range r.Sessions {
		for _, stretch := range s.Stretches {
			isOurs := func(peer string) bool { return strings.HasPrefix(peer, "toc/") }
			if slices.ContainsFunc(stretch.Peers, isOurs) && !slices.Contains(figures[stretch.Commit], s.Work) {
				figures[stretch.Commit] = append(figures[stretch.Commit], s.Work)
			}
		}
	}
	return figures, err
}

// productCommitsSince counts the commits since one, which bench-peers wrote, that touch the product's Go code.
func productCommitsSince(described string) (int, error) {
	found := regexp.MustCompile(`([0-9a-f]{7,40})(-dirty)?$`).FindStringSubmatch(described)
	if found == nil {
		found = []string{"", strings.TrimSuffix(described, "-dirty")} // a tag
	}
	args := []string{"rev-list", "--count", "--no-merges", found[1] + "..HEAD", "--", "*.go", ":!*_test.go", ":!bench", ":!examples"}
	for _, tests := range []string{"testrig", "soak", "sim", "virtual", "fakeconsul", "repotest", "transcript"} {
		args = append(args, ":!internal/"+tests)
	}
	out, err := git(args...)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(out)
}

func git(args ...string) (string, error) {
	out, err := exec.Command("git", args...).Output()
	return strings.TrimSpace(string(out)), err
}

func TestFiguresOf(t *testing.T) {
	figures, err := figuresOf([]byte(`{"sessions": [
		{"work": "drain", "stretches": [{"commit": "a", "peers": ["river", "toc/scan/8x128"]}, {"commit": "b", "peers": ["river"]}]},
		{"work": "idle", "stretches": [{"commit": "a", "peers": ["toc/redis/8x128"]}]}]}`))
	require.NoError(t, err)
	require.Equal(t, map[string][]string{"a": {"drain", "idle"}}, figures, "other systems do not age with ours")
}
