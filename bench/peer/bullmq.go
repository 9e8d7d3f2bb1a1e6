package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/timeoutcenter/toc/bench/server"
)

// bullmqPeer is BullMQ: jobs in Redis, driven by bench/bullmq/peer.mjs in Node.js.
type bullmqPeer struct{ lines }

func (p *bullmqPeer) Info() Info {
	return Info{
		Name: "bullmq", Parts: everything | Restarts,
		Settings: "one worker, concurrency 100; batches by addBulk; removeOnComplete",
		Durable:  "Redis AOF everysec: up to a second is lost",
		Precise:  "milliseconds",
	}
}

// Version names what is installed in bench/bullmq.
func (p *bullmqPeer) Version(ctx context.Context, env Env) (string, error) {
	redis, err := server.Redis.Version(ctx)
	if err != nil {
		return "", err
	}
	node, err := exec.CommandContext(ctx, "node", "--version").Output()
	if err != nil {
		return "", errors.Join(ErrMissing, err)
	}
	data, err := os.ReadFile(filepath.Join(env.Repo, bullmqDir, "node_modules/bullmq/package.json"))
	if err != nil {
		return "", errors.Join(ErrMissing, err)
	}
	var installed struct{ Version string }
	if err := json.Unmarshal(data, &installed); err != nil {
		return "", err
	}
	return fmt.Sprintf("BullMQ %s, MIT, Node %s; %s", installed.Version, bytes.TrimSpace(node), redis), nil
}

// bullmqDir has the script and, after npm install, the library.
const bullmqDir = "bench/bullmq"

func (p *bullmqPeer) Up(ctx context.Context, env Env) error {
	node, err := exec.LookPath("node")
	if err != nil {
		return errors.Join(ErrMissing, err)
	}
	dir := filepath.Join(env.Repo, bullmqDir)
	if _, err := os.Stat(filepath.Join(dir, "node_modules/bullmq")); err != nil {
		return errors.Join(ErrMissing, fmt.Errorf("BullMQ is not installed: npm install in %s: %w", bullmqDir, err))
	}
	s, err := p.start(ctx, server.Redis, env)
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return err
	}
	cmd := exec.Command(node, "peer.mjs", port)
	cmd.Dir = dir
	return p.run(ctx, cmd)
}
