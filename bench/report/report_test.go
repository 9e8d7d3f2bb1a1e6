package report

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/bench/result"
)

var update = flag.Bool("update", false, "write the golden files anew")

func drainSession() result.Session {
	s := result.Session{
		Work: "drain", Title: "Drain", Sum: "50,000 tasks due at one instant", Repeats: 3, Full: true,
		Stretches: []result.Stretch{{Command: "bench-peers --only drain", Commit: "abc1234", Started: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC),
			Limits: map[string]float64{"spin_per_s": 1.234e9, "fsync_p50_ms": 0.213, "redis_1_per_s": 81_234, "insert_128_per_s": 51_000, "finish_128_per_s": 46_000,
				"insert_16_per_s": 136_000, "finish_16_per_s": 139_000}}},
		Machine: result.Machine{CPU: "EPYC", Cores: 2, Memory: 24 << 30, Kernel: "6.1", System: "Debian 12", Disk: "ext4 on /dev/vda", Go: "go1.26"},
		Order:   []string{"toc/redis/8x128", "river", "beanstalkd", "bullmq", "delayqueue"},
		Peers: map[string]result.Peer{
			"toc/redis/8x128": {Version: "toc, this tree", Settings: "the defaults", Durable: "all", Precise: "ms"},
			"river":           {Version: "River 1", Settings: "a|b"},
			"beanstalkd":      {Version: "beanstalkd 1.12"},
			"bullmq":          {Version: "BullMQ 6"},
			"delayqueue":      {Missing: "cannot be built"},
		},
	}
	add := func(peer string, values ...float64) {
		for i, v := range values {
			s.Runs = append(s.Runs, result.Run{Peer: peer, Repeat: i + 1, N: 50_000, Values: map[string]float64{"per_s": v, "first_ms": v / 1000}})
		}
	}
	add("toc/redis/8x128", 45_000, 39_000, 40_000)
	add("river", 9000, 11_000, 10_000)
	add("beanstalkd", 30_000, 31_000)
	s.Runs = append(s.Runs,
		result.Run{Peer: "beanstalkd", Repeat: 3, Failed: "timed out\nand more"},
		result.Run{Peer: "bullmq", Repeat: 1, Failed: "node ended"})
	s.Runs[0].Values["lost"] = 7
	return s
}

func latenessSession(full bool) result.Session {
	s := result.Session{Work: "lateness-1000", Title: "Lateness", Repeats: 3, Full: full, Order: []string{"toc/redis/8x128", "beanstalkd"}, Peers: map[string]result.Peer{}}
	for i, name := range s.Order {
		r := result.Run{Peer: name, N: 20_000, Values: map[string]float64{"p99_ms": float64(3 + i), "rate_per_s": 900}}
		for q := range result.Quantiles {
			r.Curve = append(r.Curve, float64(q*(i+1)))
		}
		s.Runs = append(s.Runs, r, r, r)
	}
	return s
}

func TestSectionGolden(t *testing.T) {
	got := Section(result.Results{Sessions: []result.Session{drainSession()}})
	golden := filepath.Join("testdata", "section.md")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func TestWhatIsMissingIsNeverZero(t *testing.T) {
	text := Section(result.Results{Sessions: []result.Session{drainSession()}})
	require.Contains(t, text, "| delayqueue | **missing** |")
	require.Contains(t, text, "**missing**: cannot be built")
	require.Contains(t, text, "| bullmq | **failed** |")
	require.Contains(t, text, "- bullmq failed: node ended")
	require.Contains(t, text, "| beanstalkd | 50,000 | 2 | 30,500 (30,000–31,000) |", "a failed run is no number")
	require.Contains(t, text, "toc/redis/8x128: 7 tasks had not fired")
	require.NotContains(t, string(plotsOf(drainSession(), 1)[0].svg), "bullmq")
}

func TestGoalsCompareMediansOfOneRun(t *testing.T) {
	text := Section(result.Results{Sessions: []result.Session{drainSession(), latenessSession(true)}})
	require.Contains(t, text, "drain on 8×128, of beanstalkd's | at least 2.50× | 1.31× | not judged: too few runs |", "40,000 of 30,500, which is of two runs")
	require.Contains(t, text, "drain on 8×128, of the best durable system's | at least 1× | 4× | reached |", "of River's 10,000: beanstalkd is not durable")
	require.Contains(t, text, "lateness p99 at 1,000/s, of beanstalkd's | at most 1× | 0.75× | reached |")
	require.Contains(t, text, "drain on 8×1024, of beanstalkd's | at least 1.50× | not measured |  |")
	require.Contains(t, text, "did not keep the rate")

	slow := drainSession()
	slow.Order, slow.Peers["quartz"] = append(slow.Order, "quartz"), result.Peer{}
	slow.Runs = append(slow.Runs, result.Run{Peer: "quartz", N: 50_000, Values: map[string]float64{"per_s": 150}})
	text = Section(result.Results{Sessions: []result.Session{slow}})
	require.Contains(t, text, "of the best durable system's | at least 1× | 4× | reached |", "the one run of a slower system decides nothing")
}

func TestGoalsAreNotJudgedByALook(t *testing.T) {
	require.Contains(t, Section(result.Results{Sessions: []result.Session{latenessSession(false)}}), "| 0.75× | not judged: small sizes |")
}

func TestGoalJustMissedIsNotReachedByRounding(t *testing.T) {
	g := goal{target: 1.3}
	require.False(t, g.reached(1.2999))
	require.True(t, g.reached(1.3))
	g.most = true
	require.False(t, g.reached(1.3001))
	require.True(t, g.reached(1.3))
}

func TestSessionsStandInTheOrderOfTheDocument(t *testing.T) {
	text := Section(result.Results{Sessions: []result.Session{
		{Work: "drain", Title: "D"}, {Work: "lateness-10000", Title: "L10"}, {Work: "lateness-5000", Title: "L5"}, {Work: "submit", Title: "S"}, {Work: "lateness-5000+1m", Title: "L5, parked"},
	}})
	var at []int
	for _, title := range []string{"## S\n", "## L5\n", "## L5, parked\n", "## L10\n", "## D\n"} {
		at = append(at, strings.Index(text, title))
	}
	require.IsIncreasing(t, at)
	require.Positive(t, at[0])
}

func TestSessionsOfOneWorkloadHaveTablesOfTheirOwn(t *testing.T) {
	docs := t.TempDir()
	one, two := drainSession(), drainSession()
	two.Order = []string{"toc/redis/8x1024", "asynq"}
	for i := range two.Runs {
		two.Runs[i].Peer = two.Order[i%2]
	}
	r := result.Results{Sessions: []result.Session{one, two}}
	require.NoError(t, Write(r, docs))
	text := Section(r)
	require.Equal(t, 1, strings.Count(text, "## Drain\n"))
	first, second, last := strings.Index(text, "(drain.svg)"), strings.Index(text, "In another run: "), strings.Index(text, "(drain_2.svg)")
	require.IsIncreasing(t, []int{0, first, second, strings.LastIndex(text, "| asynq |"), last})
	require.Contains(t, text, "of beanstalkd's | at least 2.50× | 1.31× |", "a goal finds the session that has all it needs")
	require.Contains(t, text, "drain on 8×1024, of beanstalkd's | at least 1.50× | not measured |", "what was not measured in one run is not compared")

	plot := filepath.Join(docs, "bench", "drain_2.svg")
	require.FileExists(t, plot)
	r.Put(result.Session{Work: "drain", Order: two.Order})
	require.NoError(t, Write(r, docs))
	require.NoFileExists(t, plot, "nothing refers to it any more")
}

// A table that grew in several runs says of each system when it was measured.
func TestTableNamesItsRuns(t *testing.T) {
	s := drainSession()
	s.Stretches[0].Peers = []string{"river", "beanstalkd"}
	s.Stretches = append(s.Stretches, result.Stretch{Command: "bench-peers --merge", Commit: "def5678", Peers: []string{"bullmq"}})
	text := Section(result.Results{Sessions: []result.Session{s}})
	require.Contains(t, text, "at abc1234, 2026-11-21 12:00 UTC: river, beanstalkd. The machine then: loop 1,234 M/s; fsync 0.21 ms;")
	require.Contains(t, text, "`bench-peers --merge` at def5678, 0001-01-01 00:00 UTC: bullmq.\n")
}

func TestGoalOfAValueHasItsUnit(t *testing.T) {
	run := result.Run{Peer: ours, N: 1, Values: map[string]float64{"p99_ms": 110}}
	crowd := result.Session{Work: "crowd+1m", Full: true, Order: []string{ours}, Runs: []result.Run{run, run, run}}
	require.Contains(t, Section(result.Results{Sessions: []result.Session{crowd}}),
		"lateness p99 of a crowd of 20,000 beside a million parked tasks | at most 100 ms | 110 ms | **not reached** |")
}

func TestPictureOfParkedTasks(t *testing.T) {
	some := latenessSession(true)
	require.Nil(t, besideParked(result.Results{Sessions: []result.Session{some}}), "nothing to compare")
	more := latenessSession(true)
	more.Work, more.Order = "lateness-1000+1m", more.Order[:1]
	r := result.Results{Sessions: []result.Session{more, some}}
	svg := string(besideParked(r))
	checkSVG(t, svg)
	require.Contains(t, svg, ">1,000,000<")
	require.Contains(t, svg, ">0<")
	require.Equal(t, 3, strings.Count(svg, "<circle"), "of two systems, one of them in both tables")
	docs := t.TempDir()
	require.NoError(t, Write(r, docs))
	require.FileExists(t, filepath.Join(docs, "bench", parkedFile))
}

func TestWriteKeepsWhatIsWrittenByHand(t *testing.T) {
	docs := t.TempDir()
	path := filepath.Join(docs, "bench", "peers.md")
	require.NoError(t, os.Mkdir(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte("# By hand\n\nbefore\n"), 0o644))
	r := result.Results{Sessions: []result.Session{drainSession()}}
	require.NoError(t, Write(r, docs))
	first, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(first), "# By hand\n\nbefore\n\n"+begin))

	require.NoError(t, os.WriteFile(path, append(first, "after\n"...), 0o644))
	r.Sessions[0].Stretches[0].Commit = "def5678"
	require.NoError(t, Write(r, docs))
	second, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, strings.ReplaceAll(string(first), "abc1234", "def5678")+"after\n", string(second))
	require.FileExists(t, filepath.Join(docs, "bench", "drain.svg"))

	require.NoError(t, os.WriteFile(path, []byte(end+"\n"), 0o644))
	require.ErrorContains(t, Write(r, docs), "put it back")
}

func TestWriteWithoutADocumentMakesOne(t *testing.T) {
	docs := t.TempDir()
	require.NoError(t, Write(result.Results{}, docs))
	text, err := os.ReadFile(filepath.Join(docs, "bench", "peers.md"))
	require.NoError(t, err)
	require.Contains(t, string(text), "Nothing is measured yet.")
}

// Every plot is well-formed and draws within its frame.
func TestPlotsAreSVG(t *testing.T) {
	growth := result.Session{Work: "growth", Order: []string{`<a>&"b"`}, Runs: []result.Run{{Peer: `<a>&"b"`, N: 1, Values: map[string]float64{
		"1000_scan_ms": 1, "1000_per_s": 900, "1000000_scan_ms": 1, "1000000_per_s": 1100}}}}
	for _, s := range []result.Session{drainSession(), latenessSession(true), growth} {
		plots := plotsOf(s, 1)
		require.Len(t, plots, 1, s.Work)
		text := string(plots[0].svg)
		require.Contains(t, text, `xmlns="http://www.w3.org/2000/svg"`)
		require.NotContains(t, text, "NaN")
		require.NotContains(t, text, "Inf")
		checkSVG(t, text)
	}
	require.Empty(t, plotsOf(result.Session{Work: "drain", Order: []string{"x"}}, 1), "nothing measured, nothing drawn")
}

func checkSVG(t *testing.T, text string) {
	d := xml.NewDecoder(strings.NewReader(text))
	var width, height float64
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		element, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		for _, a := range element.Attr {
			v, err := strconv.ParseFloat(a.Value, 64)
			switch name := a.Name.Local; {
			case element.Name.Local == "svg" && name == "width":
				width = v
			case element.Name.Local == "svg" && name == "height":
				height = v
			case strings.HasPrefix(name, "x") && err == nil:
				require.True(t, 0 <= v && v <= width, "%s %s=%v", element.Name.Local, name, v)
			case strings.HasPrefix(name, "y") && err == nil:
				require.True(t, 0 <= v && v <= height, "%s %s=%v", element.Name.Local, name, v)
			}
		}
	}
}

func TestNumber(t *testing.T) {
	for want, v := range map[string]float64{"0": 0, "0.25": 0.25, "9.99": 9.99, "12.3": 12.34, "123": 123.4, "12,345": 12345.4, "1,234,567": 1234567, "−3.50": -3.5, "−1,200": -1200} {
		require.Equal(t, want, number(v))
	}
}
