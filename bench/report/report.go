// Package report writes results: a section of docs/bench/peers.md with tables,
// ratios and what is not comparable, and the plots beside it. It computes nothing
// that the results do not say, and what is missing it calls missing.
package report

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/timeoutcenter/toc/bench/result"
)

// Write replaces the text between these lines of peers.md each time; the rest is
// written by hand.
const (
	begin = "<!-- bench-peers: begin. Written by make bench-peers, not by hand. -->"
	end   = "<!-- bench-peers: end -->"
)

// Write writes the section and the plots of the results below docs.
func Write(r result.Results, docs string) error {
	plots := filepath.Join(docs, "bench")
	if err := os.MkdirAll(plots, 0o755); err != nil {
		return err
	}
	if err := writePlots(r, plots); err != nil {
		return err
	}
	path := filepath.Join(plots, "peers.md")
	old, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		old, err = []byte("# toc beside other systems\n"), nil
	}
	if err != nil {
		return err
	}
	text, err := replace(string(old), Section(r))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// writePlots writes the plots, and removes those of sessions that are no more.
func writePlots(r result.Results, dir string) error {
	stale, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	if err != nil {
		return err
	}
	var plots []plot
	if svg := besideParked(r); svg != nil {
		plots = append(plots, plot{file: parkedFile, svg: svg})
	}
	for s, nth := range inOrder(r) {
		plots = append(plots, plotsOf(s, nth)...)
	}
	for _, p := range plots {
		path := filepath.Join(dir, p.file)
		if err := os.WriteFile(path, p.svg, 0o644); err != nil {
			return err
		}
		stale = slices.DeleteFunc(stale, func(old string) bool { return old == path })
	}
	for _, path := range stale {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// replace puts the section in place of the old one, or at the end.
func replace(document, section string) (string, error) {
	from, to := strings.Index(document, begin), strings.Index(document, end)
	section = begin + "\n\n" + section + "\n" + end
	switch {
	case from < 0 && to < 0:
		return strings.TrimRight(document, "\n") + "\n\n" + section + "\n", nil
	case from < 0 || to < from:
		return "", errors.New("of the two lines that enclose the section one is missing: put it back, or remove both")
	default:
		return document[:from] + section + document[to+len(end):], nil
	}
}

// Section is the document's part, in Markdown.
func Section(r result.Results) string {
	var b strings.Builder
	b.WriteString("## How it was measured\n\n")
	if len(r.Sessions) == 0 {
		b.WriteString("Nothing is measured yet.\n")
		return b.String()
	}
	m := r.Sessions[0].Machine
	b.WriteString("Each table compares toc and its peers on the same work. The systems take turns. Each measurement is a new process with new, empty servers;\n" +
		"those beside the same parked tasks share them.\n\n" +
		"A number is the median of the runs; the least and the most stand in brackets. *n* is the number of tasks in one run.\n" +
		"Compare only what stands in one table. If it was measured at several times, the lines below it say when each system was, and what the machine could do then. " +
		"The raw numbers are in [results.json](results.json).\n\n" +
		"**The machine then** is what no system of the table is in: the steps a second of a loop on one core, an fsync of 4 KiB by one caller, `SET` of redis-benchmark " +
		"by 32 connections, and rows that hand-written SQL inserts and finishes in transactions of 256, over random tables of one of 8 databases; the rows once for all tables of a command. " +
		"If these differ between two tables or two lines, so did the day.\n\n")
	fmt.Fprintf(&b, "Machine: %s, %d cores, %.0f GiB, %s, kernel %s, data on %s; %s. The client, the processors and the servers share it.\n\n",
		orUnknown(m.CPU), m.Cores, float64(m.Memory)/(1<<30), orUnknown(m.System), orUnknown(m.Kernel), orUnknown(m.Disk), m.Go)
	writeGoals(&b, r)
	if besideParked(r) != nil {
		fmt.Fprintf(&b, "## Lateness beside parked tasks\n\nThe p99 at %s tasks a second, from the tables below.\n\n![Lateness p99 against parked tasks](%s)\n\n",
			thousands(parkedRate), parkedFile)
	}
	writePeers(&b, r)
	writeIncomparable(&b)
	for s, nth := range inOrder(r) {
		writeSession(&b, s, nth)
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// inOrder gives the sessions in the order of the document, and of each the how
// manyth of its workload it is, from 1.
func inOrder(r result.Results) iter.Seq2[result.Session, int] {
	return func(yield func(result.Session, int) bool) {
		nth := map[string]int{}
		for _, s := range slices.SortedStableFunc(slices.Values(r.Sessions), byWork) {
			nth[s.Work]++
			if !yield(s, nth[s.Work]) {
				return
			}
		}
	}
}

// byWork orders by kind, then by rate, then by the parked tasks.
func byWork(a, b result.Session) int {
	kinds := []string{"submit", "batch", "lateness", "crowd", "drain", "kill", "idle", "memory", "keep", "growth", "nodes", "scripts"}
	kindA, rateA, parkedA := parts(a.Work)
	kindB, rateB, parkedB := parts(b.Work)
	return cmp.Or(slices.Index(kinds, kindA)-slices.Index(kinds, kindB), rateA-rateB, parkedA-parkedB)
}

// parts reads lateness-1000+1m.
func parts(work string) (kind string, rate, parked int) {
	work, beside, _ := strings.Cut(work, "+")
	kind, perSecond, _ := strings.Cut(work, "-")
	rate, _ = strconv.Atoi(perSecond)
	parked, _ = strconv.Atoi(strings.Replace(beside, "m", "000000", 1))
	return kind, rate, parked
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// writePeers says what each peer is, from the sessions in which it stands.
func writePeers(b *strings.Builder, r result.Results) {
	b.WriteString("## Who is measured\n\n| | version | settings | an answered submit | precision of a due time |\n|---|---|---|---|---|\n")
	seen := map[string]bool{}
	// The session with the most peers has them in their order.
	longest := slices.SortedStableFunc(slices.Values(r.Sessions), func(a, b result.Session) int { return len(b.Order) - len(a.Order) })
	for _, s := range longest {
		for _, name := range s.Order {
			if seen[name] {
				continue
			}
			seen[name] = true
			p := s.Peers[name]
			if p.Missing != "" {
				fmt.Fprintf(b, "| %s | **missing**: %s | | | |\n", name, cell(p.Missing))
				continue
			}
			fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", name, cell(p.Version), cell(p.Settings), cell(p.Durable), cell(p.Precise))
		}
	}
	b.WriteString("\nThe settings of the servers are in `bench/server/kinds.go`: MariaDB `innodb_flush_log_at_trx_commit=1`, buffer pool 6 GB,\n" +
		"redo log 2 GB; Redis `appendonly yes`, `appendfsync everysec`, no snapshots; PostgreSQL `fsync` and `synchronous_commit` on, `shared_buffers` 2 GB; beanstalkd `-b DIR -f 50`.\n\n")
}

// cell keeps a text within a table's cell.
func cell(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", "\\|")
}

func writeIncomparable(b *strings.Builder) {
	b.WriteString(`## What is not comparable

- **Durability.** An answered submit of toc, of the other systems on MariaDB or PostgreSQL, of RocketMQ, Artemis and NATS and of the SQL floor is on disk. beanstalkd may lose the last 50 ms; asynq, BullMQ and Redisson the last second.
  They do less work for a submit, and their numbers do not contain the machine's fsync.
- **Precision.** asynq and beanstalkd accept whole seconds only. Their tasks are made due at whole seconds (asynq) or whole seconds after the submit (beanstalkd),
  and lateness counts from there. So the tasks of asynq come in one crowd a second. The numbers do not contain that a user may have wanted another time.
- **One instant.** beanstalkd cannot make many tasks due at one instant. For the drain its tasks become due in the second before the instant. Its workers are
  connected before and start at the instant.
- **Batches.** asynq, beanstalkd, DBOS and JobRunr have no call for many tasks. They are not in that table, and elsewhere 32 connections fill them by single calls.
- **Client.** toc and the Go peers run in this program. BullMQ runs in Node.js, and RocketMQ, Artemis, Redisson, Quartz, db-scheduler and JobRunr in a JVM:
  load, clock and workers share one process.
  toc over HTTP has client and server in one process.
- **Features.** beanstalkd keeps all tasks in memory, has no query, no dedup and one server. The floors (sql-loop, redis-scripts) have no owner, no retry and no
  cancel: they show what the servers alone can do. A batch of sql-loop goes to one database, a batch of toc to all eight.
- **Outcomes.** "Recorded" means: toc's durable status, River's completed row, asynq's processed counter, BullMQ's completed event, beanstalkd's answered delete.
  A look every 5 to 10 ms finds it. Of RocketMQ and Redisson it means that the task was handled: RocketMQ writes a consumer's progress each 5 s, and Redisson
  removes a task before it is handled. The rows of toc, River, DBOS and JobRunr stay; the others delete theirs.
- **Kill.** All servers of a system end by kill -9, also the two of toc. Client and workers go on, and connect again by the library's defaults.
  The disk keeps what the kernel has, so nothing is lost that a power cut would take.

`)
}

// writeSession writes one session, the nth of its workload.
func writeSession(b *strings.Builder, s result.Session, nth int) {
	if nth == 1 {
		fmt.Fprintf(b, "## %s\n\n%s.\n\n", s.Title, upperFirst(s.Sum))
	} else {
		fmt.Fprintf(b, "In another run: %s.\n\n", s.Sum)
	}
	if !s.Full {
		b.WriteString("These sizes are too small to judge the goals.\n\n")
	}
	t := tableOf(s)
	fmt.Fprintf(b, "| | n | runs |")
	for _, c := range t {
		fmt.Fprintf(b, " %s |", c.head)
	}
	b.WriteString("\n|---|---|---|" + strings.Repeat("---|", len(t)) + "\n")
	var notes []string
	for _, name := range s.Order {
		fmt.Fprintf(b, "| %s |", name)
		switch why := s.Failure(name); {
		case s.Peers[name].Missing != "":
			b.WriteString(" **missing** | |" + strings.Repeat(" |", len(t)) + "\n")
			continue
		case s.N(name) == 0 && why != "":
			b.WriteString(" **failed** | |" + strings.Repeat(" |", len(t)) + "\n")
			notes = append(notes, fmt.Sprintf("%s failed: %s", name, cell(firstLine(why))))
			continue
		case why != "":
			notes = append(notes, fmt.Sprintf("%s failed in some runs: %s", name, cell(firstLine(why))))
		}
		fmt.Fprintf(b, " %s | %d |", thousands(float64(s.N(name))), runs(s, name))
		for _, c := range t {
			b.WriteString(" " + c.show(s, name) + " |")
		}
		b.WriteByte('\n')
		notes = append(notes, wrong(s, name)...)
	}
	b.WriteByte('\n')
	for _, n := range notes {
		fmt.Fprintf(b, "- %s\n", n)
	}
	if len(notes) > 0 {
		b.WriteByte('\n')
	}
	for _, p := range plotsOf(s, nth) {
		fmt.Fprintf(b, "![%s](%s)\n\n", p.alt, p.file)
	}
	for _, t := range s.Stretches {
		writeStretch(b, t, len(s.Stretches) > 1)
	}
}

// writeStretch says when peers were measured, which of them if not all, and what the machine could do then.
func writeStretch(b *strings.Builder, t result.Stretch, some bool) {
	fmt.Fprintf(b, "`%s` at %s, %s", t.Command, t.Commit, t.Started.Format("2006-01-02 15:04 MST"))
	if some {
		b.WriteString(": " + strings.Join(t.Peers, ", "))
	}
	b.WriteString(".")
	if len(t.Limits) > 0 {
		b.WriteString(" The machine then: " + limits(t.Limits) + ".")
	}
	b.WriteString("\n\n")
}

func runs(s result.Session, peer string) (n int) {
	for _, r := range s.Runs {
		if r.Peer == peer && r.Failed == "" {
			n++
		}
	}
	return n
}

// wrong lists what should be zero and is not. The table of kill has columns for it.
func wrong(s result.Session, peer string) (list []string) {
	kind, asked, _ := parts(s.Work)
	if kind == "kill" {
		return nil
	}
	for _, prefix := range []string{"", "first_", "drain_"} {
		for _, key := range []string{"early", "lost", "twice"} {
			if v, ok := s.Value(peer, prefix+key); ok && v.Max > 0 {
				list = append(list, fmt.Sprintf("%s: %s tasks %s in a run", peer, thousands(v.Max), map[string]string{
					"early": "fired before they were due", "lost": "had not fired after 90 s, and count as that late", "twice": "fired more than once"}[key]))
			}
		}
	}
	if kind == "lateness" {
		const kept = 0.95
		if v, ok := s.Value(peer, "rate_per_s"); ok && v.Min < kept*float64(asked) {
			list = append(list, fmt.Sprintf("%s did not keep the rate: %s tasks a second were submitted in a run", peer, thousands(v.Min)))
		}
	}
	return list
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	const most = 200
	if len(line) > most {
		line = strings.ToValidUTF8(line[:most], "") + "…"
	}
	return line
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
