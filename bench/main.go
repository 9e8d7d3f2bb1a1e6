// Bench-peers measures the product beside the systems that its users would choose
// instead, in one run: the same work, one system at a time, in turns, several
// times. It brings up the servers itself and writes a section of
// docs/bench/peers.md, its plots, and the numbers as JSON.
//
//	make bench-peers                                   # everything: hours
//	make bench-peers ARGS=--quick                      # small: a quarter of an hour
//	make bench-peers ARGS="--only lateness,drain --peers toc/redis,beanstalkd"
//	make bench-peers ARGS="--merge --peers artemis"    # one more system, into the same tables
//
// Packages: server/ brings up servers, peer/ drives the systems, work/ has the
// measurements, stat/ has the arithmetic, result/ keeps the numbers, report/ writes
// them. Each measurement runs in a separate process (single.go), so that none
// inherits another's heap or CPU time; only the measurements beside the same parked
// tasks share one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/timeoutcenter/toc/bench/peer"
	"github.com/timeoutcenter/toc/bench/work"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "bench-peers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 && args[0] == singleCommand {
		return runSingle(ctx, args[1:], out)
	}
	if len(args) == 3 && args[0] == peer.NATSCommand {
		return peer.ServeNATS(ctx, args[1], args[2])
	}
	o, err := parse(args, out)
	if err != nil {
		return err
	}
	if o.list {
		o.printList(out)
		return nil
	}
	return o.measure(ctx, out)
}

// options is what a run was asked for.
type options struct {
	sizes   work.Sizes
	repeats int
	only    names
	peers   names
	quick   bool
	list    bool
	reprint bool
	merge   bool
	docs    string
	repo    string
	scratch string
	limit   time.Duration
	command string // as it was typed
}

// names is a list of beginnings: lateness is lateness-1000 and lateness-5000+1m. An empty one takes all.
type names []string

func (n names) match(name string) bool {
	for _, want := range n {
		if rest, ok := strings.CutPrefix(name, want); ok && (rest == "" || strings.ContainsAny(rest[:1], "-/+")) {
			return true
		}
	}
	return len(n) == 0
}

func (n *names) String() string { return strings.Join(*n, ",") }

func (n *names) Set(s string) error {
	*n = (*n)[:0]
	for _, one := range strings.Split(s, ",") {
		if one = strings.TrimSpace(one); one != "" {
			*n = append(*n, one)
		}
	}
	return nil
}

// ints is a flag of several numbers.
type ints struct {
	list  *[]int
	least int
}

func (i ints) String() string {
	if i.list == nil {
		return ""
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(*i.list), " ", ","), "[]")
}

func (i ints) Set(s string) error {
	*i.list = nil
	for _, one := range strings.Split(s, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(one))
		if err != nil || n < i.least {
			return fmt.Errorf("%q is not a number of %d or more", one, i.least)
		}
		*i.list = append(*i.list, n)
	}
	return nil
}

// quickPeers leaves out what is large.
var quickPeers = []string{"toc/redis/8x128", "toc/scan/8x128", "toc/redis/embedded", "toc/scan/embedded",
	"asynq", "river", "beanstalkd", "bullmq", "delayqueue", "sql-loop/8x128", "redis-scripts"}

func parse(args []string, out io.Writer) (*options, error) {
	o := &options{sizes: work.Full(), repeats: 3, command: "bench-peers " + strings.Join(args, " ")}
	for _, a := range args {
		if a == "--quick" || a == "-quick" {
			o.sizes, o.repeats, o.peers = work.Quick(), 1, quickPeers // flags may still change them
		}
	}
	f := flag.NewFlagSet("bench-peers", flag.ContinueOnError)
	f.SetOutput(out)
	f.BoolVar(&o.quick, "quick", false, "small sizes, one repeat, without 8x1024: under a quarter of an hour, for a look")
	f.Bool("full", false, "the sizes that the project is judged by, three repeats: hours (the default)")
	f.IntVar(&o.repeats, "repeats", o.repeats, "of each measurement; the median counts")
	f.Var(&o.only, "only", "workloads, by the beginnings of their names: lateness,drain")
	f.Var(&o.peers, "peers", "peers, by the beginnings of their names: toc/redis,beanstalkd")
	f.BoolVar(&o.list, "list", false, "print the workloads and the peers, and measure nothing")
	f.BoolVar(&o.reprint, "report", false, "write the document anew from the numbers that there are, and measure nothing")
	f.BoolVar(&o.merge, "merge", false, "put the peers into the tables that there are, in place of their older numbers: a run may be split over hours")
	f.StringVar(&o.docs, "docs", "docs", "the directory whose bench/ gets peers.md, the plots and the numbers")
	f.StringVar(&o.repo, "repo", ".", "the product's sources")
	f.StringVar(&o.scratch, "scratch", "/var/tmp", "where servers keep their data; a disk, or every fsync is flattered")
	f.DurationVar(&o.limit, "limit", 90*time.Minute, "a single measurement that takes longer has failed")
	s := &o.sizes
	f.IntVar(&s.Singles, "singles", s.Singles, "tasks of submit")
	f.IntVar(&s.Batched, "batched", s.Batched, "tasks of batch")
	f.Var(ints{&s.Rates, 1}, "rates", "tasks a second of lateness")
	f.DurationVar(&s.Steady, "steady", s.Steady, "length of lateness")
	f.Var(ints{&s.Parked, 0}, "parked", "tasks parked over 30 days beside a workload; each number is a table, 0 too: 0,1000000,10000000")
	f.IntVar(&s.Crowd, "crowd", s.Crowd, "tasks due in one second, of crowd, or at one instant, of kill")
	f.IntVar(&s.Drain, "drain", s.Drain, "tasks due at one instant, of drain")
	f.DurationVar(&s.IdleFor, "idle", s.IdleFor, "length of idle")
	f.DurationVar(&s.IdleSettle, "idle-settle", s.IdleSettle, "rest after parking")
	f.DurationVar(&s.Settle, "settle", s.Settle, "rest before each workload")
	f.IntVar(&s.Armed, "armed", s.Armed, "tasks of memory")
	f.Var(ints{&s.Grown, 1}, "grown", "parked rows of growth, ascending")
	f.IntVar(&s.Calls, "calls", s.Calls, "calls of each script")
	f.DurationVar(&s.Keep, "keep", s.Keep, "length of keep")
	f.IntVar(&s.KeepRate, "keep-rate", s.KeepRate, "tasks a second of keep")
	f.DurationVar(&s.Retention, "retention", s.Retention, "how long keep keeps what has fired")
	f.Var(ints{&s.Tables, 1}, "tables", "tables of each of 8 databases, for the limits of the machine; powers of two")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("%q is not understood; see --help", f.Arg(0))
	}
	return o, o.check()
}

func (o *options) check() error {
	s := o.sizes
	if min(o.repeats, s.Singles, s.Batched, s.Crowd, s.Drain, s.Armed, s.Calls, s.KeepRate) < 1 {
		return errors.New("counts must be 1 or more")
	}
	if s.Steady < time.Second || s.IdleFor < time.Second || s.Keep < 6*time.Second || min(s.IdleSettle, s.Settle, s.Retention) < 0 {
		return errors.New("--steady and --idle must be 1s or more, --keep 6s, --settle, --idle-settle and --retention 0 or more")
	}
	for _, want := range o.only {
		if !(names{want}).any(workloadNames(s)) {
			return fmt.Errorf("--only: no workload is called %q; there are %s", want, strings.Join(workloadNames(s), ", "))
		}
	}
	for _, want := range o.peers {
		if !(names{want}).any(peerNames()) {
			return fmt.Errorf("--peers: no peer is called %q; there are %s", want, strings.Join(peerNames(), ", "))
		}
	}
	return nil
}

// any reports whether a name of the list matches.
func (n names) any(list []string) bool {
	for _, name := range list {
		if n.match(name) {
			return true
		}
	}
	return false
}

func workloadNames(s work.Sizes) (list []string) {
	for _, w := range s.All() {
		list = append(list, w.Name)
	}
	return list
}

func peerNames() (list []string) {
	for _, p := range peer.All() {
		list = append(list, p.Info().Name)
	}
	for _, a := range peer.Absent() {
		list = append(list, a.Name)
	}
	return list
}

func (o *options) printList(out io.Writer) {
	fmt.Fprintln(out, "workloads:")
	for _, w := range o.sizes.All() {
		fmt.Fprintf(out, "  %-20s %s\n", w.Name, w.Sum)
	}
	fmt.Fprintln(out, "peers:")
	for _, p := range peer.All() {
		fmt.Fprintf(out, "  %-24s %s\n", p.Info().Name, p.Info().Settings)
	}
	for _, a := range peer.Absent() {
		fmt.Fprintf(out, "  %-24s missing: %s\n", a.Name, a.Missing)
	}
}
