package forward_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/cluster/forward"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/task"
)

// sleeper takes offers down; each waits until it is let go.
type sleeper struct {
	*server
	t       *testing.T
	status  int
	arrived chan []uint64
	answer  chan struct{}
	atOnce  atomic.Int64
}

func newSleeper(t *testing.T, status int) *sleeper {
	s := &sleeper{t: t, status: status, arrived: make(chan []uint64), answer: make(chan struct{})}
	s.server = serve(t, func(w http.ResponseWriter, r *http.Request) {
		if s.atOnce.Add(1) > 1 {
			t.Error("two requests at once")
		}
		var in struct {
			JobIDs []string `json:"job_ids"`
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || r.URL.Path != "/v1/cluster/wake" {
			t.Error(r.URL, err)
		}
		var ids []uint64
		for _, digits := range in.JobIDs {
			n, err := strconv.ParseUint(digits, 10, 64)
			if err != nil {
				t.Error(err)
			}
			ids = append(ids, n)
		}
		s.arrived <- ids
		<-s.answer
		s.atOnce.Add(-1)
		w.WriteHeader(s.status)
		_, _ = io.WriteString(w, `{"taken":0}`)
	})
	return s
}

func tasks(from, n uint64) (list []task.Task) {
	for id := from; id < from+n; id++ {
		list = append(list, task.Task{JobID: id})
	}
	return list
}

// offers returns a function that offers tasks to the other node.
func offers(t *testing.T, f *forward.Forwarder) func(tasks ...task.Task) {
	return the(t, f).(interface{ Offer(tasks ...task.Task) }).Offer
}

func patient(cfg *forward.Config) { cfg.Timeout = time.Minute }

// What waits while a request is under way goes out with the next ones, none of
// them too large, and only so much waits.
func TestOffersAreGathered(t *testing.T) {
	s := newSleeper(t, 200)
	p, l := one(t, s.URL, patient)
	offer := offers(t, p)
	offer(tasks(0, 1)...)
	require.Len(t, <-s.arrived, 1) // and it hangs
	offer()
	for i := range uint64(10) {
		offer(tasks(1+i*950, 950)...)
	}
	offer(tasks(9501, 600)...) // 500 of these fit
	offer(tasks(99_000, 10)...)

	next := uint64(1)
	for range 10 {
		s.answer <- struct{}{}
		ids := <-s.arrived
		require.Len(t, ids, intake.MaxWake)
		for _, id := range ids {
			require.Equal(t, next, id)
			next++
		}
	}
	require.EqualValues(t, 10_001, next, "10,000 waited")
	require.Contains(t, l.String(), "tasks=100 ")
	require.Contains(t, l.String(), "tasks=10 ")
	require.Contains(t, l.String(), "level=DEBUG")

	offer(tasks(7, 1)...) // there is room again
	s.answer <- struct{}{}
	require.Equal(t, []uint64{7}, <-s.arrived)
	s.answer <- struct{}{}
}

func TestOffersThatFailAreDropped(t *testing.T) {
	s := newSleeper(t, 503)
	p, l := one(t, s.URL, patient)
	offers(t, p)(tasks(1, 2)...)
	require.Len(t, <-s.arrived, 2)
	offers(t, p)(tasks(3, 1)...)
	s.answer <- struct{}{}
	require.Equal(t, []uint64{3}, <-s.arrived, "the next ones are tried")
	s.answer <- struct{}{}
	p.Close()
	require.Contains(t, l.String(), `level=DEBUG msg="offers dropped; the owner's scan finds the tasks" node=n2 tasks=2 reason="it answered with status 503"`)
	require.NotContains(t, l.String(), "WARN")
}

// Close waits for requests under way; after it there are none.
func TestClose(t *testing.T) {
	s := newSleeper(t, 200)
	p, _ := one(t, s.URL, patient)
	offer := offers(t, p)
	offer(tasks(1, 1)...)
	<-s.arrived
	offer(tasks(2, 1)...)

	early := make(chan bool, 1)
	var released atomic.Bool
	go func() {
		p.Close()
		early <- !released.Load()
	}()
	s.answer <- struct{}{}
	require.Equal(t, []uint64{2}, <-s.arrived, "what waited still goes out")
	released.Store(true)
	s.answer <- struct{}{}
	require.False(t, <-early, "an offer was under way")

	asked := s.asked.Load()
	for what, err := range ask(t.Context(), the(t, p)) {
		require.ErrorIs(t, err, task.ErrUnavailable, what)
		require.ErrorContains(t, err, "stopping")
	}
	offer(tasks(3, 1)...)
	p.Close() // twice does no harm
	require.Equal(t, asked, s.asked.Load())
}

// A node that hangs does not hold a stop up for longer than the time-out, however
// much waits for it.
func TestCloseIsBounded(t *testing.T) {
	leave := make(chan struct{})
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-leave:
		case <-r.Context().Done():
		}
	})
	defer close(leave)
	p, _ := one(t, s.URL, func(cfg *forward.Config) { cfg.Timeout = 200 * time.Millisecond })
	offers(t, p)(tasks(1, 10_000)...)
	p.Close()
	require.LessOrEqual(t, s.asked.Load(), int64(3), "what waited was given up")
}
