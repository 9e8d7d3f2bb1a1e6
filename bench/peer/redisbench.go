package peer

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisBenchmark lets redis-benchmark call the product's scripts, each for one
// task of one slot that holds n: calls a second by script, 32 connections,
// without and with a pipeline of 16. There is no client that reads what comes.
func (p *redisScripts) RedisBenchmark(ctx context.Context, n int) (map[string]float64, error) {
	tool, err := exec.LookPath("redis-benchmark")
	if err != nil {
		return nil, errors.Join(ErrMissing, err)
	}
	const store, prepare, dead = "bench_0", "prepare_{bench_0}", "dead_{bench_0}"
	const any = "__rand_int__"     // redis-benchmark puts 12 digits there
	pad := strings.Repeat("x", 72) // the scripts' member that is too long for a listpack
	score := strconv.FormatInt(time.Now().UnixMilli()*1000, 10)
	scripts := []struct {
		name string
		into string // the queue that is filled beforehand
		args []string
	}{
		{"arm", "", []string{"3", store, prepare, dead, "toc:wake", "0", bizName, pad, "", "3600", score, any}},
		{"claim", store, []string{"2", store, prepare, "1", "45000", "60000000", "9007199254739", pad, "3600", "0"}},
		{"settle", prepare, []string{"3", store, prepare, dead, "toc:wake", "0", bizName, "1", "0", "0", "3600", "3600", "10000", pad, any}},
	}
	values := make(map[string]float64)
	for _, s := range scripts {
		text, err := os.ReadFile(filepath.Join(p.lua, s.name+".lua"))
		if err != nil {
			return nil, err
		}
		sha, err := p.client.ScriptLoad(ctx, string(text)).Result()
		if err != nil {
			return nil, fmt.Errorf("load %s: %w", s.name, err)
		}
		for _, pipeline := range []int{1, 16} {
			if err := p.fill(ctx, s.into, score, n); err != nil {
				return nil, err
			}
			rate, err := redisBenchmark(ctx, tool, p.client.Options().Addr, n, pipeline, append([]string{"EVALSHA", sha}, s.args...))
			if err != nil {
				return nil, fmt.Errorf("redis-benchmark %s: %w", s.name, err)
			}
			values[fmt.Sprintf("%s_%d_per_s", s.name, pipeline)] = rate
		}
	}
	return values, nil
}

// fill empties Redis and puts n tasks into a queue.
func (p *redisScripts) fill(ctx context.Context, queue, score string, n int) error {
	if err := p.client.FlushAll(ctx).Err(); err != nil || queue == "" {
		return err
	}
	at, err := strconv.ParseFloat(score, 64)
	if err != nil {
		return err
	}
	const most = 1000
	for from := 0; from < n; from += most {
		members := make([]redis.Z, 0, most)
		for id := from; id < min(n, from+most); id++ {
			members = append(members, redis.Z{Score: at, Member: fmt.Sprintf("%012d", id)})
		}
		if err := p.client.ZAdd(ctx, queue, members...).Err(); err != nil {
			return err
		}
	}
	return nil
}

func redisBenchmark(ctx context.Context, tool, addr string, n, pipeline int, call []string) (float64, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, err
	}
	args := append([]string{"-h", host, "-p", port, "-c", "32", "-n", strconv.Itoa(n), "-r", strconv.Itoa(n),
		"-P", strconv.Itoa(pipeline), "--csv"}, call...)
	out, err := exec.CommandContext(ctx, tool, args...).Output()
	if err != nil {
		return 0, err
	}
	return parseRedisBenchmark(string(out))
}

// parseRedisBenchmark reads "test","rps",… of the last line.
func parseRedisBenchmark(out string) (float64, error) {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last := csv.NewReader(strings.NewReader(lines[len(lines)-1]))
	last.LazyQuotes = true
	fields, err := last.Read()
	if err != nil {
		return 0, err
	}
	for _, f := range fields[min(1, len(fields)):] {
		if rate, err := strconv.ParseFloat(f, 64); err == nil {
			return rate, nil
		}
	}
	return 0, fmt.Errorf("output not understood: %.200q", out)
}
