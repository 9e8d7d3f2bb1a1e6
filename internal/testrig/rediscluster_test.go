package testrig

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// ask sends one command to a node and gives what it answers, errors too.
func ask(t *testing.T, c *RedisCluster, node int, command string) string {
	t.Helper()
	answer, err := redisCall(t.Context(), c.addr(node), strings.Fields(command)...)
	if err != nil {
		return err.Error()
	}
	return answer
}

func TestAClusterServesItsThirds(t *testing.T) {
	t.Parallel()
	c := StartRedisCluster(t, "--appendfsync", "always")
	keys := oneKeyPerNode(c)
	for owner, key := range keys {
		for node := range keys {
			want := "OK"
			if node != owner {
				want = fmt.Sprintf("MOVED %d %s", c.SlotOf(key), c.Addrs()[owner])
			}
			require.Equal(t, want, ask(t, c, node, "SET "+key+" "+key))
		}
	}

	c.Kill(1)
	require.Contains(t, ask(t, c, 1, "PING"), "connection refused")
	for _, node := range []int{0, 2} { // they find out, and go on
		await.That(t, func() bool {
			return !strings.Contains(ask(t, c, node, "CLUSTER INFO"), "cluster_slots_fail:0\r\n")
		}, "node %d knows that another one is gone", node)
		require.Equal(t, keys[node], ask(t, c, node, "GET "+keys[node]))
	}

	c.Start(1)
	for node, key := range keys {
		require.Equal(t, key, ask(t, c, node, "GET "+key))
		require.NoError(t, complete(t.Context(), c.addr(node)))
	}
}

// With two of three gone, the one that is left refuses to serve: it may be the one that is cut off.
func TestAClusterComesBackNodeByNode(t *testing.T) {
	t.Parallel()
	c := StartRedisCluster(t)
	keys := oneKeyPerNode(c)
	c.Kill(0)
	c.Kill(1)
	await.That(t, func() bool {
		return strings.HasPrefix(ask(t, c, 2, "GET "+keys[2]), "CLUSTERDOWN")
	}, "the last node refuses")
	c.Start(1)
	c.Start(0)
	for node, key := range keys {
		require.Equal(t, "OK", ask(t, c, node, "SET "+key+" 1"))
	}
}

func TestAHashSlotMovesWithItsKeys(t *testing.T) {
	t.Parallel()
	c := StartRedisCluster(t)
	const keys = 2*migrateBatch + 1
	slot := c.SlotOf("{a}")
	require.Equal(t, 15495, slot, "as the specification's CRC16 has it")
	from := c.NodeOf(slot)
	to := (from + 1) % clusterNodes
	moved := fmt.Sprintf("MOVED %d %s", slot, c.Addrs()[to])
	for i := range keys {
		require.Equal(t, "OK", ask(t, c, from, fmt.Sprintf("SET {a}%d %d", i, i)))
	}

	c.OpenMigration(t, slot, from, to)
	require.Equal(t, "7", ask(t, c, from, "GET {a}7"), "has not moved yet")
	require.Equal(t, fmt.Sprintf("ASK %d %s", slot, c.Addrs()[to]), ask(t, c, from, "GET {a}new"))
	require.Contains(t, ask(t, c, from, "MGET {a}7 {a}new"), "TRYAGAIN")
	require.Equal(t, from, c.NodeOf(slot))

	c.Migrate(t, slot, from, to)
	require.Equal(t, to, c.NodeOf(slot))
	for node := range c.nodes {
		count := fmt.Sprintf("CLUSTER COUNTKEYSINSLOT %d", slot)
		if node == to {
			require.Equal(t, fmt.Sprint(keys), ask(t, c, node, count))
			continue
		}
		require.Equal(t, "0", ask(t, c, node, count))
		require.Equal(t, moved, ask(t, c, node, "GET {a}7"))
	}
	for i := range keys {
		require.Equal(t, fmt.Sprint(i), ask(t, c, to, fmt.Sprintf("GET {a}%d", i)))
	}
}

// oneKeyPerNode gives for each node a key that it has.
func oneKeyPerNode(c *RedisCluster) [clusterNodes]string {
	var keys [clusterNodes]string
	for i, found := 0, 0; found < len(keys); i++ {
		key := fmt.Sprint("key", i)
		if of := &keys[c.NodeOf(c.SlotOf(key))]; *of == "" {
			*of = key
			found++
		}
	}
	return keys
}

func TestAClusterHasAFrozenNode(t *testing.T) {
	t.Parallel()
	c := StartRedisCluster(t)
	slot := c.SlotOf("key")
	c.Freeze(0)
	require.Equal(t, slot, c.SlotOf("key"), "another node tells")
	c.Thaw(0)
	require.Equal(t, "PONG", ask(t, c, 0, "PING"))
}
