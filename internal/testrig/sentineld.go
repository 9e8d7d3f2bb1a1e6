package testrig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// sentineld is the engine of a Redis Sentinel that watches one master.
type sentineld struct {
	redisd
	master int // its port
}

const sentinelMaster = "mymaster"

func (sentineld) name() string { return "sentinel" }

// prepare writes the file that a sentinel keeps its state in. Alone it decides that a silent master is dead.
func (s sentineld) prepare(_ context.Context, dir string) error {
	return os.WriteFile(filepath.Join(dir, "sentinel.conf"), fmt.Appendf(nil,
		"sentinel monitor %s 127.0.0.1 %d 1\nsentinel down-after-milliseconds %[1]s 1000\nsentinel failover-timeout %[1]s 5000\n", sentinelMaster, s.master), 0o600)
}

func (s sentineld) command(dir string, port int) *exec.Cmd {
	cmd := exec.Command(s.binary, filepath.Join(dir, "sentinel.conf"), "--sentinel", "--bind", "127.0.0.1", "--dir", dir)
	cmd.Args = append(cmd.Args, s.listen(dir, port)...)
	cmd.Dir = dir
	return cmd
}

func (s sentineld) ready(ctx context.Context, dir string, port, pid int) error {
	addr := s.way(dir, port)
	info, err := redisCall(ctx, addr, "INFO")
	if err == nil {
		err = isProcess(info, pid)
	}
	if err == nil {
		_, err = redisList(ctx, addr, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", sentinelMaster)
	}
	return err
}

// StartSentinel starts a sentinel for this test alone. It watches a master, which it calls mymaster.
func StartSentinel(t testing.TB, master *PrivateRedis, options ...Option) *PrivateRedis {
	t.Helper()
	needsServer(t)
	e, err := findRedis(options...)
	c := startPrivate(t, sentineld{e, master.srv.port}, err)
	return &PrivateRedis{RedisServer{addr: c.srv.addr(), prefix: uniquePrefix()}, c}
}

// ReplicaOf makes a server a replica of another and waits until it has its data.
func (r *PrivateRedis) ReplicaOf(master *PrivateRedis) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), startTimeout)
	defer cancel()
	way := r.srv.engine.(redisd).way(r.srv.dir(), r.srv.port)
	_, err := redisCall(ctx, way, "REPLICAOF", "127.0.0.1", fmt.Sprint(master.srv.port))
	for err == nil {
		var info string
		if info, err = redisCall(ctx, way, "INFO", "replication"); hasLine(info, "master_link_status:up") {
			break
		}
		err = pause(ctx, err)
	}
	r.must("replicate to", err)
}
