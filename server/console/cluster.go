package console

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/api"
)

type clusterBody struct {
	Node       string
	Partitions int
	Columns    int
	Height     string
	Nodes      []nodeRow
	NoOwner    int
	Orphans    string // path of the partitions without an owner
	Ranges     string // of those
	Faults     []faultLine
	Servers    []serverRow
	Changes    []ownerChange
	Words      string
}

type nodeRow struct {
	NodePulse
	Count  int
	Ranges string
	Path   string // of its cells in the map
	Clock  string // the one that differs most
}

// serverRow is a database, Redis or Consul, as the nodes find it.
type serverRow struct {
	Name   string
	Mood   string
	State  string
	Faults []string
}

func (c *Console) clusterBody(ctx context.Context, _ string) (any, error) {
	cluster, err := c.cfg.Status.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	p, err := c.look(ctx)
	if err != nil {
		return nil, err
	}
	b := &clusterBody{Node: cluster.Node, Partitions: cluster.Partitions, Faults: p.Faults, Changes: c.owners.list()}
	b.Columns = max(8, 1<<int(math.Round(math.Log2(math.Sqrt(4*float64(cluster.Partitions))))))
	b.Columns = max(1, min(b.Columns, cluster.Partitions)) // a cell of no partition looks like one of another node
	b.Height = strconv.Itoa((cluster.Partitions + b.Columns - 1) / b.Columns)
	owned := make([]bool, cluster.Partitions)
	for _, n := range cluster.Nodes {
		row := nodeRow{NodePulse: NodePulse{Name: n.Name, Address: n.Address, Partitions: n.Partitions}, Count: len(n.Partitions),
			Ranges: ranges(n.Partitions), Path: cells(n.Partitions, b.Columns)}
		for _, said := range p.Nodes {
			if said.Name == n.Name {
				row.Err, row.Pulse = said.Err, said.Pulse
				row.Clock = farthestClock(said.Clocks)
			}
		}
		for _, q := range n.Partitions {
			owned[q] = true
		}
		b.Nodes = append(b.Nodes, row)
	}
	var orphans []int
	for q, is := range owned {
		if !is {
			orphans = append(orphans, q)
		}
	}
	b.NoOwner, b.Orphans, b.Ranges = len(orphans), cells(orphans, b.Columns), ranges(orphans)
	b.Servers = servers(p)
	b.Words = fmt.Sprintf("%s on %s.", plural(b.Partitions, "partition", "partitions"), plural(len(b.Nodes), "node", "nodes"))
	if b.NoOwner > 0 {
		b.Words += fmt.Sprintf(" %s no owner: their tasks wait.", plural(b.NoOwner, "has", "have"))
	} else {
		b.Words += " Each has its owner."
	}
	return b, nil
}

// cells is the path of cells of a map: partition 0 is at the top left.
func cells(partitions []int, columns int) string {
	var path strings.Builder
	for i := 0; i < len(partitions); {
		first := partitions[i]
		n := 1
		for i+n < len(partitions) && partitions[i+n] == first+n && (first+n)%columns != 0 {
			n++
		}
		fmt.Fprintf(&path, "M%d %dh%dv1h-%dz", first%columns, first/columns, n, n)
		i += n
	}
	return path.String()
}

// rangesMost is how many ranges of partitions are written out.
const rangesMost = 60

// ranges writes partitions in words: 0–31, 64.
func ranges(partitions []int) string {
	var list []string
	for i := 0; i < len(partitions); {
		n := 1
		for i+n < len(partitions) && partitions[i+n] == partitions[i]+n {
			n++
		}
		text := strconv.Itoa(partitions[i])
		if n > 1 {
			text += "–" + strconv.Itoa(partitions[i]+n-1)
		}
		if list = append(list, text); len(list) == rangesMost {
			list = append(list, "…")
			break
		}
		i += n
	}
	return strings.Join(list, ", ")
}

func farthestClock(clocks []api.PulseClock) string {
	if len(clocks) == 0 {
		return ""
	}
	far := slices.MaxFunc(clocks, func(a, b api.PulseClock) int { return cmp.Compare(math.Abs(a.Ahead), math.Abs(b.Ahead)) })
	way := "ahead of"
	if far.Ahead < 0 {
		way = "behind"
	}
	return fmt.Sprintf("%s %s %s %s", seconds(math.Abs(far.Ahead)), way, far.Of, far.Name)
}

// servers sums up how the nodes find the databases, Redis and Consul.
func servers(p *picture) (list []serverRow) {
	databases := 0
	for _, n := range p.Nodes {
		databases = max(databases, len(n.Databases))
	}
	for d := range databases {
		list = append(list, database(p, d))
	}
	return append(list,
		helper(p, "Redis", func(n *NodePulse) *bool { return n.Redis }),
		helper(p, "Consul", func(n *NodePulse) *bool { return n.Consul }))
}

func database(p *picture, d int) serverRow {
	row := serverRow{Name: fmt.Sprintf("database %d", d), Mood: "ok", State: "answers"}
	slow := 0.0
	for _, n := range p.Nodes {
		if d >= len(n.Databases) {
			continue
		}
		said := n.Databases[d]
		if slow = max(slow, said.Answer); said.Up {
			continue
		}
		text := n.Name + ": " + cmp.Or(said.Fault, "down")
		if !said.Since.IsZero() {
			text += ", since " + said.Since.String()
		}
		row.Faults = append(row.Faults, text)
	}
	switch {
	case len(row.Faults) > 0:
		row.Mood, row.State = "bad", "fails"
	case slow > 0:
		row.Mood, row.State = "warn", "slow: an answer takes "+seconds(slow)
	}
	return row
}

// helper is Redis or Consul; up is how a node finds it, nil if it needs none.
func helper(p *picture, name string, up func(*NodePulse) *bool) serverRow {
	row := serverRow{Name: name, State: "not used"}
	for i := range p.Nodes {
		switch is := up(&p.Nodes[i]); {
		case is == nil:
		case !*is:
			row.Mood, row.State = "bad", "fails"
			row.Faults = append(row.Faults, p.Nodes[i].Name+": does not answer for all that it needs")
		case row.Mood == "":
			row.Mood, row.State = "ok", "answers"
		}
	}
	return row
}

// owners follows who owns what, as this node learns it.
type owners struct {
	mu      sync.Mutex
	now     map[int]string // nil: nothing was noted yet
	changes []ownerChange  // the latest first
}

// ownerChange is partitions that have gone from one owner to another at a tick.
type ownerChange struct {
	At       time.Time
	From, To string // empty: no owner
	Count    int
	Ranges   string
}

// changesMost is how many changes are kept.
const changesMost = 50

func newOwners() *owners { return &owners{} }

// note compares owners with those noted before.
func (o *owners) note(at time.Time, c api.Cluster) {
	now := make(map[int]string, c.Partitions)
	for _, n := range c.Nodes {
		for _, p := range n.Partitions {
			now[p] = n.Name
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.now
	if o.now = now; before == nil {
		return
	}
	type move struct{ from, to string }
	moved := make(map[move][]int)
	for p := range c.Partitions {
		if before[p] != now[p] {
			m := move{before[p], now[p]}
			moved[m] = append(moved[m], p)
		}
	}
	var list []ownerChange
	for m, partitions := range moved {
		list = append(list, ownerChange{at, m.from, m.to, len(partitions), ranges(partitions)})
	}
	slices.SortFunc(list, func(a, b ownerChange) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	o.changes = append(list, o.changes...)
	o.changes = o.changes[:min(changesMost, len(o.changes))]
}

func (o *owners) list() []ownerChange {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.changes)
}
