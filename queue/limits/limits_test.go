package limits_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/queue/limits"
	"github.com/timeoutcenter/toc/task"
)

const (
	partitions = 64
	orders     = 7
	gap        = 3 * time.Second
)

// cluster is some nodes whose limits talk to each other, in a bubble, by steps of a millisecond.
type cluster struct {
	*testing.T
	biz    task.BizType
	owner  [partitions]*node // nil: nobody
	nodes  []*node
	starts []time.Time
	peak   int // most runs at once
	random *rand.Rand
	seq    int
	lose   float64 // part of the messages whose answers are lost
}

// node runs waiting tasks, each for a time.
type node struct {
	*cluster
	limits  *limits.Limits
	term    [partitions]uint64
	unclean [partitions]time.Time
	waiting func() int // tasks that wait
	takes   time.Duration
	ends    []time.Time // of the runs under way
	dead    bool
	listed  bool // although it is dead
	late    bool
	asked   time.Time
	started int
}

func (n *node) Term(p int) uint64 {
	if n.owner[p] != n {
		return 0
	}
	return n.term[p]
}

func (n *node) TakenUncleanly(p int) (time.Time, bool) { return n.unclean[p], !n.unclean[p].IsZero() }

func plenty() int { return 1000 }

func none() int { return 0 }

func newCluster(t *testing.T, nodes int, biz task.BizType) *cluster {
	biz.ID, biz.Name = orders, "orders"
	c := &cluster{T: t, biz: biz, random: rand.New(rand.NewPCG(1, 2))}
	for range nodes {
		n := &node{cluster: c, waiting: plenty, takes: 20 * time.Millisecond}
		cfg := limits.Config{Partitions: partitions, Ownership: n}
		if nodes > 1 {
			cfg.Gap = gap
		}
		n.limits = limits.New(cfg)
		n.limits.SetTypes([]task.BizType{biz})
		c.nodes = append(c.nodes, n)
	}
	for p := range partitions {
		c.take(p, c.nodes[p%nodes], false)
	}
	return c
}

func (c *cluster) take(p int, n *node, unclean bool) {
	c.owner[p] = n
	n.term[p]++
	n.unclean[p] = time.Time{}
	if unclean {
		n.unclean[p] = time.Now()
	}
}

func (c *cluster) running() (all int) {
	for _, n := range c.nodes {
		all += len(n.ends)
	}
	return all
}

// run lets time pass.
func (c *cluster) run(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Millisecond) { // in a bubble
		for i, n := range c.nodes {
			if n.dead {
				continue
			}
			n.work()
			if time.Since(n.asked) >= limits.AskEvery+time.Duration(i)*time.Millisecond {
				n.asked = time.Now()
				n.ask()
			}
		}
		c.peak = max(c.peak, c.running())
		if c.biz.MaxRunning > 0 {
			require.LessOrEqual(c, c.running(), c.biz.MaxRunning, "at %v", time.Now())
		}
	}
}

func (n *node) work() {
	left := n.ends[:0]
	for _, end := range n.ends {
		if end.After(time.Now()) {
			left = append(left, end)
		} else {
			n.limits.Of(orders).End()
		}
	}
	n.ends = left
	for w := n.waiting(); w > 0; {
		got, _, wait := n.limits.Of(orders).Take(min(w, 4), w, n.late)
		if got == 0 {
			require.Positive(n, wait)
			return
		}
		if got > 1 && n.random.IntN(4) == 0 {
			n.limits.Of(orders).GiveBack(1, n.late)
			got--
		}
		for range got {
			n.started++
			n.starts = append(n.starts, time.Now())
			n.ends = append(n.ends, time.Now().Add(n.takes))
		}
		w -= got
	}
}

func (n *node) ask() {
	silent := n.lose == 2
	for _, other := range n.nodes {
		silent = silent || other.dead && other.listed
	}
	n.limits.SetSilent(silent)
	for name, other := range n.nodes {
		if other == n || other.dead {
			continue
		}
		lender := string(rune('a' + name))
		list := n.limits.Asks(lender, len(n.nodes))
		if len(list) == 0 {
			continue
		}
		n.seq++
		if n.random.Float64() < n.lose/2 {
			continue // the ask is lost
		}
		grants := other.limits.Answer(string(rune('a'+indexOf(n.nodes, n))), n.seq, list)
		if n.random.Float64() < n.lose/2 {
			continue // the answer is lost
		}
		n.limits.Granted(lender, time.Now(), list, grants)
	}
}

func indexOf(list []*node, n *node) int {
	for i := range list {
		if list[i] == n {
			return i
		}
	}
	return -1
}

// perTenSeconds returns the least and the most starts in any 10 s from a time on.
func (c *cluster) perTenSeconds(from time.Time) (least, most int) {
	least = 1 << 60
	for at := from; !at.Add(10 * time.Second).After(time.Now()); at = at.Add(100 * time.Millisecond) {
		n := 0
		for _, s := range c.starts {
			if !s.Before(at) && s.Before(at.Add(10*time.Second)) {
				n++
			}
		}
		least, most = min(least, n), max(most, n)
	}
	return least, most
}

func TestARateHoldsForAllNodesTogether(t *testing.T) {
	for _, rate := range []int{1, 7, 500, 5000} {
		for _, nodes := range []int{1, 3} {
			t.Run(fmt.Sprintf("%d a second, %d nodes", rate, nodes), func(t *testing.T) {
				if rate == 5000 {
					testrig.OnlyInAll(t, "500 a second")
				}
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t, nodes, task.BizType{RateLimit: rate, Timeout: time.Second})
					from := time.Now().Add(time.Second)
					c.run(25 * time.Second)
					least, most := c.perTenSeconds(from)
					require.LessOrEqual(t, most, rate*11)
					require.GreaterOrEqual(t, least, rate*9)
				})
			})
		}
	}
}

// All tasks are in the partitions of one node.
func TestANodeGetsTheRateThatOthersDoNotUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, rate := range []int{1, 100, 500} {
			c := newCluster(t, 3, task.BizType{RateLimit: rate, Timeout: time.Second})
			c.nodes[1].waiting, c.nodes[2].waiting = none, none
			from := time.Now().Add(time.Second)
			c.run(15 * time.Second)
			least, most := c.perTenSeconds(from)
			require.LessOrEqual(t, most, rate*11, "rate %d", rate)
			require.GreaterOrEqual(t, least, rate*9, "rate %d", rate)
		}
	})
}

// One partition has the whole rate of 1 a second, and its owner has tasks all the time. The others must not starve.
func TestEveryNodeGetsAPartOfASmallLimit(t *testing.T) {
	for name, b := range map[string]task.BizType{"rate": {RateLimit: 3, Timeout: time.Second}, "running": {MaxRunning: 1, Timeout: time.Second}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 3, b)
				c.run(30 * time.Second)
				_, most := c.perTenSeconds(time.Now().Add(-20 * time.Second))
				if b.RateLimit > 0 {
					require.LessOrEqual(t, most, 33)
				}
				for i, n := range c.nodes {
					require.Greater(t, n.started, len(c.starts)/10, "node %d of %d starts", i, len(c.starts))
				}
			})
		})
	}
}

func TestANodeIsKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, without := range []time.Duration{gap, 3500 * time.Millisecond} { // until others have its partitions
			c := newCluster(t, 3, task.BizType{RateLimit: 500, Timeout: time.Second})
			from := time.Now().Add(time.Second)
			c.run(12 * time.Second)
			c.kill(2, without)
			c.run(20 * time.Second)
			least, most := c.perTenSeconds(from)
			require.LessOrEqual(t, most, 5500)
			require.GreaterOrEqual(t, least, 4500, without)
		}
	})
}

// The nodes do not reach one another, for long, and each of them counts the others as silent.
func TestNodesThatDoNotReachOneAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, task.BizType{RateLimit: 500, Timeout: time.Second})
		from := time.Now().Add(time.Second)
		c.run(12 * time.Second)
		c.lose = 2
		c.run(20 * time.Second)
		least, most := c.perTenSeconds(from)
		require.LessOrEqual(t, most, 5500)
		require.GreaterOrEqual(t, least, 4500)
		least, most = c.perTenSeconds(time.Now().Add(-10 * time.Second))
		require.InDelta(t, 5000, most, 100, "it does not go on so")
		require.InDelta(t, 5000, least, 100)
	})
}

// kill ends a node. Its partitions have no owner for a while.
func (c *cluster) kill(i int, after time.Duration) {
	n := c.nodes[i]
	n.dead, n.ends, n.listed = true, nil, true
	var mine []int
	for p := range c.owner {
		if c.owner[p] == n {
			c.owner[p] = nil
			mine = append(mine, p)
		}
	}
	c.run(after)
	n.listed = false
	for k, p := range mine {
		c.take(p, c.nodes[(i+1+k%2)%3], true) // neither is the dead one
	}
}

func TestNeverOneRunMoreThanMaxRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, most := range []int{1, 2, 20, 100} {
			c := newCluster(t, 3, task.BizType{MaxRunning: most, Timeout: 300 * time.Millisecond})
			c.lose = 0.3
			for i, n := range c.nodes {
				n.takes = time.Duration(20+i*100) * time.Millisecond
				n.waiting = func() int { return n.random.IntN(3) * n.random.IntN(most+1) }
			}
			for range 60 { // hand-overs, clean ones
				c.run(300 * time.Millisecond)
				from, to := c.nodes[c.random.IntN(3)], c.nodes[c.random.IntN(3)]
				if from == to {
					continue
				}
				var moved []int
				for p := range partitions {
					if c.owner[p] == from && c.random.IntN(3) == 0 {
						c.owner[p] = nil
						moved = append(moved, p)
					}
				}
				for tries := 0; !from.limits.Settled(); tries++ {
					c.run(time.Millisecond)
					require.Less(t, tries, 5000, "the hand-over does not end")
				}
				for _, p := range moved {
					c.take(p, to, false)
				}
			}
			require.NotEmpty(t, c.starts)

			c.kill(2, gap)
			for _, n := range c.nodes[:2] {
				n.waiting = plenty
			}
			c.run(2 * time.Second)
			c.peak = 0
			c.run(5 * time.Second)
			require.Equal(t, most, c.peak, "all permits are in use again")
		}
	})
}

// A node that is cut off goes on with its runs for a while. Nobody may use its permits until these have ended.
func TestPermitsOfANodeThatIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, task.BizType{MaxRunning: 9, Timeout: 2 * time.Second})
		c.nodes[2].takes = 2 * time.Second
		c.run(3 * time.Second)
		n := c.nodes[2]
		require.NotEmpty(t, n.ends)
		n.waiting = none
		k := 0
		for p := range c.owner {
			if c.owner[p] == n {
				c.take(p, c.nodes[k%2], true)
				k++
			}
		}
		c.run(10 * time.Second)
		c.peak = 0
		c.run(time.Second)
		require.Equal(t, 9, c.peak)
	})
}

// So it is for who gets their partitions next, also if they are handed over in order.
func TestPermitsOfANodeThatIsCutOffAreHandedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, task.BizType{MaxRunning: 9, Timeout: 2 * time.Second})
		c.nodes[2].takes = 2 * time.Second
		c.run(3 * time.Second)
		n := c.nodes[2]
		require.NotEmpty(t, n.ends)
		n.waiting = none
		var mine []int
		for p := range c.owner {
			if c.owner[p] == n {
				mine = append(mine, p)
				c.take(p, c.nodes[0], true)
			}
		}
		for to := range 4 {
			c.run(400 * time.Millisecond)
			all := 0
			for _, p := range mine { // some have no permit
				withheld := c.owner[p].limits.Withholds(p)
				if withheld {
					all++
				}
				c.take(p, c.nodes[(to+1)%2], withheld)
			}
			require.NotZero(t, all)
		}
		c.run(4 * time.Second)
		for _, p := range mine {
			require.False(t, c.owner[p].limits.Withholds(p))
		}
	})
}

// A node that leaves gives back what it has borrowed with its last ask. Before, the lender counted it as used for a time-out more, and
// could not hand over its own partitions.
func TestANodeThatLeavesGivesBackPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, task.BizType{MaxRunning: 8, Timeout: 30 * time.Second})
		lender, borrower := c.nodes[0], c.nodes[1]
		lender.waiting = none
		c.run(2 * time.Second)
		require.Greater(t, len(borrower.ends), 4, "it has borrowed")
		for range borrower.ends { // its runs end, and at once it leaves
			borrower.limits.Of(orders).End()
		}
		borrower.ends, borrower.dead = nil, true
		for p := range c.owner {
			c.take(p, lender, false)
		}
		borrower.limits.StopWaiting()
		borrower.ask()
		for p := range c.owner {
			c.owner[p] = nil
		}
		require.True(t, lender.limits.Settled(), "the lender can leave, too")
	})
}

// What a node has lent stays lent while its type is out of the file. At 799f0ec the lender ran 4 more.
func TestLoansOutliveAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, task.BizType{MaxRunning: 8, Timeout: 30 * time.Second})
		lender, borrower := c.nodes[0], c.nodes[1]
		lender.waiting, borrower.takes = none, 20*time.Second
		c.run(2 * time.Second)
		require.Len(t, borrower.ends, 8, "it has borrowed")
		for _, n := range c.nodes {
			n.limits.SetTypes(nil)
		}
		time.Sleep(3 * time.Second) // in a bubble
		for _, n := range c.nodes {
			n.limits.SetTypes([]task.BizType{c.biz})
		}
		lender.waiting = plenty
		c.run(30 * time.Second)
		require.Equal(t, 8, c.peak)
	})
}

func TestCatchUpLimitsLateTasksOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, task.BizType{CatchUp: 50, Timeout: time.Second})
		n := c.nodes[0]
		l := n.limits.Of(orders)
		n.late = true
		from := time.Now().Add(time.Second)
		c.run(15 * time.Second)
		least, most := c.perTenSeconds(from)
		require.LessOrEqual(t, most, 550)
		require.GreaterOrEqual(t, least, 450)
		got, _, _ := l.Take(1000, 1000, false)
		require.Equal(t, 1000, got)
		counts, by := n.limits.Throttled(orders)
		require.Equal(t, limits.CatchUp, by)
		require.Positive(t, counts[limits.CatchUp])
		require.Zero(t, counts[limits.Rate])
	})
}

func TestATypeWithoutLimits(t *testing.T) {
	var l *limits.Limits
	require.Nil(t, l.Of(1))
	require.True(t, l.Settled())
	l = limits.New(limits.Config{Partitions: 1})
	l.SetTypes([]task.BizType{{ID: 1, Workers: 5}})
	require.Nil(t, l.Of(1))
	_, by := l.Throttled(1)
	require.Empty(t, by)
}
