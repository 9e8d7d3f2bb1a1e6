package testrig

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	clusterNodes = 3
	hashSlots    = 16384
	migrateBatch = 100 // keys a MIGRATE

	// nodeTimeout is how long a master may be silent before the others hold it for dead. The load of a machine alone must
	// not silence a master for so long.
	nodeTimeout = 1500 * time.Millisecond
)

// RedisCluster is a Redis Cluster of three masters without replicas that belongs to one test. Its nodes are numbered
// 0, 1, 2 and begin with a third of the hash slots each. While one of them is down the others go on serving theirs
// (cluster-require-full-coverage no). It needs Redis 7.
type RedisCluster struct {
	t     testing.TB
	nodes []Control
	owner [hashSlots]int // node's number by hash slot
}

// StartRedisCluster starts a cluster for this test alone and waits until each node calls it complete: some seconds, as a
// master holds back at first. Its data goes when the test ends.
func StartRedisCluster(t testing.TB, options ...Option) *RedisCluster {
	t.Helper()
	needsServer(t)
	c := &RedisCluster{t: t, nodes: startNodes(t, options)}
	for i := range c.nodes {
		for slot := firstSlot(i); slot < firstSlot(i+1); slot++ {
			c.owner[slot] = i
		}
	}
	if err := c.join(t.Context()); err != nil {
		t.Fatalf("testrig: make a cluster of %v: %v", c.Addrs(), err)
	}
	return c
}

// startNodes starts them at the same time.
func startNodes(t testing.TB, options []Option) []Control {
	t.Helper()
	e, err := findRedis(options...)
	servers := make([]*server, clusterNodes)
	if err == nil {
		var g errgroup.Group
		for i := range servers {
			g.Go(func() (err error) {
				servers[i], err = launch(t.Context(), redisNode{e})
				return err
			})
		}
		err = g.Wait()
	}
	nodes := make([]Control, clusterNodes)
	for i, s := range servers {
		if s != nil {
			nodes[i] = keepPrivate(t, s)
		}
	}
	if err != nil {
		t.Fatalf("testrig: this test needs a Redis Cluster of its own: %v", err)
	}
	return nodes
}

// Addrs is host:port of each node, in their order.
func (c *RedisCluster) Addrs() []string {
	addrs := make([]string, len(c.nodes))
	for i := range addrs {
		addrs[i] = c.addr(i)
	}
	return addrs
}

func (c *RedisCluster) addr(node int) string { return c.nodes[node].srv.addr() }

// way is the address at which the rig reaches a node.
func (c *RedisCluster) way(node int) string {
	srv := c.nodes[node].srv
	return srv.engine.(redisNode).way(srv.dir(), srv.port)
}

// SlotOf is the key's hash slot, 0 to 16383, as Redis computes it.
func (c *RedisCluster) SlotOf(key string) int {
	c.t.Helper()
	var answer string
	var err error
	for i := range c.nodes {
		ctx, cancel := context.WithTimeout(c.t.Context(), probeTimeout) // one may be frozen
		answer, err = redisCall(ctx, c.way(i), "CLUSTER", "KEYSLOT", key)
		cancel()
		if err == nil {
			break // any that is up will do
		}
	}
	slot, atoiErr := strconv.Atoi(answer)
	if err := errors.Join(err, atoiErr); err != nil {
		c.t.Fatalf("testrig: hash slot of %q: %v", key, err)
	}
	return slot
}

// NodeOf is the number of the node that has the hash slot.
func (c *RedisCluster) NodeOf(slot int) int { return c.owner[slot] }

// Kill ends a node as a power cut would (SIGKILL) and waits until it is gone. The others find out after their time-out.
func (c *RedisCluster) Kill(node int) {
	c.t.Helper()
	c.nodes[node].Kill()
}

// Freeze halts a node (SIGSTOP): connections stay, answers do not come. The others hold it for dead after their time-out.
func (c *RedisCluster) Freeze(node int) {
	c.t.Helper()
	c.nodes[node].Freeze()
}

// Thaw lets a frozen node go on and waits until each node calls the cluster complete.
func (c *RedisCluster) Thaw(node int) {
	c.t.Helper()
	c.nodes[node].Thaw()
	if err := c.awaitComplete(context.WithoutCancel(c.t.Context())); err != nil {
		c.t.Fatalf("testrig: thaw node %d: %v", node, err)
	}
}

// Start starts a node that is down, on the same data and the same ports. If it was the last one missing, Start waits
// until each node calls the cluster complete.
func (c *RedisCluster) Start(node int) {
	c.t.Helper()
	c.nodes[node].Start()
	for _, n := range c.nodes {
		if !n.srv.up() {
			return
		}
	}
	if err := c.awaitComplete(context.WithoutCancel(c.t.Context())); err != nil {
		c.t.Fatalf("testrig: start node %d: %v", node, err)
	}
}

// OpenMigration begins to move a hash slot: from now on the old node asks clients over to the new one (ASK) for keys
// that it lacks, and either may answer TRYAGAIN to a command of several keys. Migrate ends it.
func (c *RedisCluster) OpenMigration(t testing.TB, slot, from, to int) {
	t.Helper()
	if err := c.openMigration(t.Context(), slot, from, to); err != nil {
		t.Fatalf("testrig: open hash slot %d of node %d to node %d: %v", slot, from, to, err)
	}
}

// Migrate moves a hash slot with all its keys from one node to another, as an operator would (redis-cli --cluster
// reshard), while clients go on. All nodes must be up.
func (c *RedisCluster) Migrate(t testing.TB, slot, from, to int) {
	t.Helper()
	c.OpenMigration(t, slot, from, to)
	err := c.moveKeys(t.Context(), slot, from, to)
	if err == nil {
		err = c.assign(t.Context(), slot, from, to)
	}
	if err != nil {
		t.Fatalf("testrig: migrate hash slot %d from node %d to node %d: %v", slot, from, to, err)
	}
	c.owner[slot] = to
}

// openMigration prepares the new owner first: the old one may send it clients at once.
func (c *RedisCluster) openMigration(ctx context.Context, slot, from, to int) error {
	ids := make(map[int]string)
	for _, node := range []int{from, to} {
		var err error
		if ids[node], err = redisCall(ctx, c.way(node), "CLUSTER", "MYID"); err != nil {
			return err
		}
	}
	_, err := redisCall(ctx, c.way(to), "CLUSTER", "SETSLOT", strconv.Itoa(slot), "IMPORTING", ids[from])
	if err == nil {
		_, err = redisCall(ctx, c.way(from), "CLUSTER", "SETSLOT", strconv.Itoa(slot), "MIGRATING", ids[to])
	}
	return err
}

func (c *RedisCluster) moveKeys(ctx context.Context, slot, from, to int) error {
	for {
		keys, err := redisList(ctx, c.way(from), "CLUSTER", "GETKEYSINSLOT", strconv.Itoa(slot), strconv.Itoa(migrateBatch))
		if err != nil || len(keys) == 0 {
			return err
		}
		host, port, _ := strings.Cut(c.addr(to), ":")
		migrate := []string{"MIGRATE", host, port, "", "0", strconv.Itoa(int(probeTimeout.Milliseconds())), "KEYS"}
		if _, err := redisCall(ctx, c.way(from), append(migrate, keys...)...); err != nil {
			return err
		}
	}
}

// assign gives the slot to its new owner, which must know first; then to the old one, and then to the rest.
func (c *RedisCluster) assign(ctx context.Context, slot, from, to int) error {
	id, err := redisCall(ctx, c.way(to), "CLUSTER", "MYID")
	if err != nil {
		return err
	}
	order := []int{to, from}
	for i := range c.nodes {
		if i != to && i != from {
			order = append(order, i)
		}
	}
	for _, node := range order {
		if _, err := redisCall(ctx, c.way(node), "CLUSTER", "SETSLOT", strconv.Itoa(slot), "NODE", id); err != nil {
			return err
		}
	}
	return nil
}

// firstSlot is where a node's third begins.
func firstSlot(node int) int { return node * hashSlots / clusterNodes }

// join makes one cluster of fresh nodes.
func (c *RedisCluster) join(ctx context.Context) error {
	for i := range c.nodes {
		for _, command := range [][]string{
			{"SET-CONFIG-EPOCH", strconv.Itoa(i + 1)}, // or they would settle who has which, one node time-out each
			{"ADDSLOTSRANGE", strconv.Itoa(firstSlot(i)), strconv.Itoa(firstSlot(i+1) - 1)},
		} {
			if _, err := redisCall(ctx, c.way(i), append([]string{"CLUSTER"}, command...)...); err != nil {
				return err
			}
		}
	}
	for _, n := range c.nodes[1:] {
		port := n.srv.port
		_, err := redisCall(ctx, c.way(0), "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(port), strconv.Itoa(busPort(port)))
		if err != nil {
			return err
		}
	}
	return c.awaitComplete(ctx)
}

// awaitComplete waits until each node reports all nodes, and a healthy owner for each hash slot.
func (c *RedisCluster) awaitComplete(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for node := 0; node < len(c.nodes); {
		err := complete(ctx, c.way(node))
		if err == nil {
			node++
			continue
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until node %d calls the cluster complete: %w (last: %w)", node, context.Cause(ctx), err)
		case <-tick.C:
		}
	}
	return nil
}

func complete(ctx context.Context, addr string) error {
	info, err := redisCall(ctx, addr, "CLUSTER", "INFO")
	if err != nil {
		return err
	}
	for _, line := range []string{
		"cluster_state:ok",
		"cluster_slots_ok:" + strconv.Itoa(hashSlots),
		"cluster_known_nodes:" + strconv.Itoa(clusterNodes),
	} {
		if !strings.Contains(info, line+"\r\n") {
			return fmt.Errorf("no %s in %q", line, info)
		}
	}
	return nil
}

// redisNode is the engine of one node of a cluster.
type redisNode struct{ redisd }

func (n redisNode) command(dir string, port int) *exec.Cmd {
	n.flags = append([]Option{
		"--cluster-enabled", "yes",
		"--cluster-port", Option(strconv.Itoa(busPort(port))),
		"--cluster-announce-ip", "127.0.0.1",
		"--cluster-node-timeout", Option(strconv.FormatInt(nodeTimeout.Milliseconds(), 10)),
		"--cluster-require-full-coverage", "no",
	}, n.flags...)
	if n.tls != nil {
		n.flags = append([]Option{"--tls-cluster", "yes"}, n.flags...)
	}
	return n.redisd.command(dir, port)
}

// busPort is where the node with this port talks to its like: its neighbour, which is of the rig's range as well. Redis's
// own choice (port+10000) may be one that the kernel gives to clients. Where it is taken the node does not start, and
// launch tries another pair.
func busPort(port int) int { return port ^ 1 }
