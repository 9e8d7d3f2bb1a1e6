package soak_test

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
)

// BenchmarkBacklog pauses a type, and lets a million of its tasks become overdue. Use -benchtime=1x.
func BenchmarkBacklog(b *testing.B) {
	for _, mode := range []string{configs.ModeRedis, configs.ModeScan} {
		b.Run(mode, func(b *testing.B) { benchBacklog(b, mode) })
	}
}

func benchBacklog(b *testing.B, mode string) {
	const n, catchUp, watched = 1_000_000, 2000, 40 * time.Second
	held := typeOf(1, "held")
	held.Mode, held.CatchUp = mode, catchUp
	f := operated(b, 1, held, typeOf(2, "other"))
	f.startAll()
	f.awaitWhole()
	_, err := f.anyAPI().Pause(b.Context(), "held", client.Pause{})
	require.NoError(b, err)
	time.Sleep(3 * time.Second)
	before := f.watch(b, watched)
	f.fill(n, "1, UTC_TIMESTAMP(3), 0, 0, '', '"+quick("held")+"'")
	time.Sleep(20 * time.Second) // some scans
	after := f.watch(b, watched)
	for name, m := range map[string]usage{"idle": before, "backlog": after} {
		b.ReportMetric(m.rss, "node-MB-"+name)
		b.ReportMetric(m.redis, "redis-MB-"+name)
		b.ReportMetric(m.node, "node-%cpu-"+name)
		b.ReportMetric(m.mysql, "mariadb-%cpu-"+name)
	}
	_, err = f.anyAPI().Resume(b.Context(), "held")
	require.NoError(b, err)
	time.Sleep(5 * time.Second)
	from := time.Now()
	time.Sleep(watched)
	f.nodes[0].kill()
	k := 0
	for _, s := range f.runsOf(quick("held")) {
		if at := time.Unix(0, s.From); at.After(from) && at.Before(from.Add(watched)) {
			k++
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(k)/watched.Seconds(), "resumed/s")
}

// usage is what the servers and the node use: MB, and percent of a core.
type usage struct{ rss, redis, node, mysql float64 }

// watch measures the first node and its servers for some time.
func (f *fleet) watch(b *testing.B, d time.Duration) (m usage) {
	c := redis.NewClient(&redis.Options{Addr: f.cfg.Redis.Addrs[0]})
	defer c.Close()
	db := testrig.MySQL(b).DB(b)
	var file string
	require.NoError(b, db.QueryRow("SELECT @@pid_file").Scan(&file))
	text, err := os.ReadFile(file)
	require.NoError(b, err)
	mysqld, err := strconv.Atoi(string(bytes.TrimSpace(text)))
	require.NoError(b, err)
	node := f.nodes[0].proc.Pid()
	m.node, m.mysql = -cpuOf(b, node), -cpuOf(b, mysqld)
	time.Sleep(d)
	m.node, m.mysql = (m.node+cpuOf(b, node))/d.Seconds()*100, (m.mysql+cpuOf(b, mysqld))/d.Seconds()*100
	info, err := c.InfoMap(b.Context(), "memory").Result()
	require.NoError(b, err)
	used, err := strconv.ParseFloat(info["Memory"]["used_memory"], 64)
	require.NoError(b, err)
	m.redis = used / 1e6
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", node))
	require.NoError(b, err)
	pages, err := strconv.ParseFloat(string(bytes.Fields(statm)[1]), 64)
	require.NoError(b, err)
	m.rss = pages * float64(os.Getpagesize()) / 1e6
	return m
}

// cpuOf is the processor time of a process so far, in seconds.
func cpuOf(b *testing.B, pid int) float64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(b, err)
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	ticks := 0.
	for _, field := range fields[11:13] { // user and system time
		k, err := strconv.ParseFloat(string(field), 64)
		require.NoError(b, err)
		ticks += k
	}
	return ticks / 100 // USER_HZ
}
