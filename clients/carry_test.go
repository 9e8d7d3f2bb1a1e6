package clients

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/internal/testrig"
)

// script finds the script of a language in docs/moving-from-youzan.md.
func script(t *testing.T, language string) string {
	text, err := os.ReadFile("../docs/moving-from-youzan.md")
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindSubmatch(text)
	require.NotNil(t, found)
	return string(found[1])
}

// The scripts of the page about moving carry the jobs of a queue in Redis over, each once however often they run.
func TestCarryOver(t *testing.T) {
	python, r := program(t, "python3"), testrig.StartRedis(t)
	rdb := redis.NewClient(&redis.Options{Addr: r.Addr()})
	defer func() { require.NoError(t, rdb.Close()) }()
	due := time.Now().Add(time.Hour).Truncate(time.Second)
	for id, body := range map[string]string{"o-1": `{"shop":"ü"}`, "o-2": ""} {
		_, err := rdb.Eval(t.Context(), `redis.call('SET', KEYS[2], cmsgpack.pack({Topic = 'pulled', Id = KEYS[2], Delay = 0, TTR = 90, Body = ARGV[2]}))
			return redis.call('ZADD', KEYS[1], ARGV[1], KEYS[2])`, []string{"dq_bucket_1", id}, due.Unix(), body).Result()
		require.NoError(t, err)
	}
	require.NoError(t, rdb.ZAdd(t.Context(), "dq_bucket_1", redis.Z{Score: 1, Member: "deleted"}).Err())
	lines, err := rdb.Eval(t.Context(), script(t, "lua"), []string{"dq_bucket_1"}, 0, 999).StringSlice()
	require.NoError(t, err)
	require.Len(t, lines, 2)

	url, began := start(t), time.Now()
	for range 2 {
		cmd := exec.CommandContext(t.Context(), python, "-c", script(t, "python"))
		cmd.Env = append(os.Environ(), "TOC="+url+"/youzan", "TOC_TOKEN="+token)
		cmd.Stdin = strings.NewReader(strings.Join(lines, "\n"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.ElementsMatch(t, []string{"o-1", "o-2"}, strings.Fields(string(out)))
	}
	cmd := exec.CommandContext(t.Context(), python, "-c", script(t, "python"))
	cmd.Env = append(os.Environ(), "TOC="+url+"/youzan", "TOC_TOKEN="+token)
	cmd.Stdin = strings.NewReader(`{"topic":"nosuch","id":"o-3","due":0,"ttr":1,"body":""}`)
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, 1, cmd.ProcessState.ExitCode())
	require.Regexp(t, `^o-3: topic.*nosuch`, string(out), "a refusal names the job and what is wrong, and is no traceback")
	for _, line := range lines {
		var job struct{ ID, Body string }
		require.NoError(t, json.Unmarshal([]byte(line), &job))
		page, err := client.New(url, client.WithToken(token)).List(t.Context(), client.List{BizKey: job.ID})
		require.NoError(t, err)
		require.Len(t, page.Tasks, 1)
		got := page.Tasks[0]
		require.Equal(t, job.Body, got.Attribute)
		require.Equal(t, 90*time.Second, time.Duration(got.Timeout))
		require.WithinRange(t, got.ActionTime.Time(), due.Add(-time.Second), due.Add(time.Since(began)+time.Second))
	}
}
