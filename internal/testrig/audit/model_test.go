package audit

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/task"
)

// refusedAs makes a change one that was refused for a reason.
func refusedAs(c *Change, why task.Conflict) *Change {
	c.Done, c.ByState, c.Conflict = Refused, true, why
	return c
}

// lasts makes a change one that was under way for so many seconds.
func lasts(c *Change, s float64) *Change {
	c.Answered = c.Sent.Add(at(s).Sub(at(0)))
	return c
}

// What the model allows, beside what TestRules asks of it, and what it does not.
func TestModel(t *testing.T) {
	t.Parallel()
	const running, processed = task.ConflictRunning, task.ConflictProcessed
	ok, fail, stopped := uint64(EndOK), uint64(EndFailed), uint64(EndStopped)
	runs := func(list ...Run) []Run { return list }
	fired := runs(ran(onlyOfTwo, ok, 10, 10, 12, 0))
	atTen, done, called := stands(task.Pending, 10, 0), stands(task.Processed, 10, 0), stands(task.Cancelled, 10, 0)
	for name, c := range map[string]struct {
		changes []*Change
		runs    []Run
		row     Row
		holds   bool
	}{
		"refused while it runs":             {[]*Change{refusedAs(cancels(false, 11, Refused), running)}, fired, done, true},
		"refused before it runs":            {[]*Change{refusedAs(cancels(false, 5, Refused), running)}, fired, done, false},
		"refused as processed, after":       {[]*Change{refusedAs(cancels(false, 13, Refused), processed)}, fired, done, true},
		"refused as processed, while it is": {[]*Change{refusedAs(cancels(false, 11, Refused), processed)}, fired, done, false},
		"refused as processed, before":      {[]*Change{refusedAs(cancels(false, 5, Refused), processed)}, fired, done, false},
		"refused without a reason":          {[]*Change{refusedAs(cancels(false, 5, Refused), "")}, fired, done, false},
		"a hand that found nothing":         {[]*Change{refusedAs(cancels(true, 5, Refused), "")}, fired, done, false},
		"a redrive of what is not dead":     {[]*Change{refusedAs(redrives(5), task.ConflictPending)}, fired, done, true},

		"cancelled, sent before it starts and answered after": {[]*Change{lasts(cancels(false, 9.9, Made), 1)}, fired, called, false},
		"cancelled, sent while it runs and answered after":    {[]*Change{lasts(cancels(false, 11, Made), 3)}, fired, called, false},
		"cancelled between two runs": {[]*Change{lasts(cancels(false, 12, Made), .1)}, runs(ran(onlyOfTwo, fail, 10, 10, 12, 0)),
			stands(task.Cancelled, 12.11, 1), true},
		"cancelled, and moved after":  {[]*Change{cancels(false, 5, Made), moves(false, 6, Made, 10)}, fired, done, false},
		"cancelled and moved at once": {[]*Change{lasts(cancels(false, 5, Made), 2), lasts(moves(false, 5, Made, 10), 2)}, nil, called, true},

		"perhaps cancelled, seconds later":    {[]*Change{cancels(false, 5, Unknown), moves(false, 8, Made, 10)}, nil, called, true},
		"perhaps cancelled, as it still runs": {[]*Change{cancels(false, 5, Unknown)}, fired, called, false},
		"perhaps cancelled, then refused":     {[]*Change{cancels(false, 5, Unknown), refusedAs(cancels(false, 6, Refused), task.ConflictCancelled)}, nil, called, true},
		"refused by a cancel that came after": {[]*Change{refusedAs(cancels(false, 5, Refused), task.ConflictCancelled), cancels(false, 6, Unknown)}, nil, called, false},

		"perhaps moved, and fired at the old time": {[]*Change{moves(false, 9.5, Unknown, 14)}, fired, stands(task.Processed, 14, 0), false},
		"perhaps moved behind a fault, and fired at the old time": {[]*Change{moves(false, 20.1, Unknown, 28)},
			runs(ran(onlyOfTwo, ok, 10, 20.5, 20.6, 0)), stands(task.Processed, 28, 0), true},
		"moved, and fired at the old time":    {[]*Change{moves(false, 9.5, Made, 14)}, fired, stands(task.Processed, 14, 0), false},
		"moved by hand, and fired just after": {[]*Change{moves(true, 9.5, Made, 14)}, fired, stands(task.Processed, 14, 0), true},
		"moved by hand, and fired long after": {[]*Change{moves(true, 8, Made, 14)}, fired, stands(task.Processed, 14, 0), false},
		"moved, by hand and back":             {[]*Change{moves(true, 8, Made, 14), moves(false, 9, Made, 10)}, fired, done, true},
		"edited during a run, and retried at once": {[]*Change{edits(9.5, "b")},
			runs(ran(onlyOfTwo, fail, 10, 10, 10.1, 0), ran(onlyOfTwo, ok, 10.2, 10.2, 10.3, 1)), stands(task.Processed, 10.2, 1).with("b"), true},
		"edited before, and retried late": {[]*Change{edits(9.5, "b")},
			runs(ran(onlyOfTwo, fail, 10, 10, 10.1, 0), ran(onlyOfTwo, ok, 10.2, 12, 12.1, 1)), stands(task.Processed, 10.2, 1).with("b"), false},
		"cancelled where its run was killed":    {[]*Change{cancels(false, 23, Made)}, runs(ran(firstOfOne, 0, 10, 19.9, 0, 0)), called, true},
		"ran after that":                        {[]*Change{cancels(false, 23, Made)}, runs(ran(firstOfOne, 0, 10, 19.9, 0, 0), ran(onlyOfTwo, ok, 10, 24, 24.1, 0)), called, false},
		"cancelled while the killed one ran":    {[]*Change{lasts(cancels(false, 19.95, Made), .01)}, runs(ran(firstOfOne, 0, 10, 19.9, 0, 0)), called, false},
		"stopped, and run again":                {nil, runs(ran(firstOfOne, stopped, 10, 10, 11, 0), ran(onlyOfTwo, ok, 10, 12, 13, 0)), done, true},
		"again before it was told to stop":      {nil, runs(ran(firstOfOne, stopped, 10, 10, 12, 0), ran(onlyOfTwo, ok, 10, 11, 13, 0)), done, false},
		"not done, although its run ended well": {nil, fired, atTen, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			v := Judge(Evidence{Center: madeUpCenter(), Faults: madeUpFaults, Artifacts: dir, Runs: map[uint64][]Run{1: c.runs}, Rows: map[uint64]Row{1: c.row},
				Histories: []*History{{JobID: 1, BizType: madeUp.Name, Attribute: "a", Changes: c.changes, Known: at(1),
					Submits: []SubmitTry{{Sent: at(0), Answered: at(1), Due: at(10)}}}}})
			require.Equal(t, c.holds, len(v.Broken[Unlinearizable]) == 0, "%v", v.Broken)
			_, err := os.Stat(filepath.Join(dir, "task-1.html"))
			require.Equal(t, c.holds, os.IsNotExist(err), "a history that breaks it is drawn")
		})
	}
}

// An undo makes what a discard has cancelled dead again, and nothing else.
func TestUndoOfADiscard(t *testing.T) {
	t.Parallel()
	kills := asks(Stopped, true, 5, Made, Effect{Status: new(task.Dead)})
	refused := refusedAs(cancels(false, 11, Refused), task.ConflictCancelled)
	discard, undo := Operation{Kind: "discard", Sent: at(7), Answered: at(9), Ended: at(9)}, Operation{Kind: "undo", Sent: at(12), Answered: at(13), Ended: at(13)}
	for name, c := range map[string]struct {
		changes    []*Change
		operations []Operation
		status     task.Status
		holds      bool
	}{
		"undone, and redriven":               {[]*Change{kills, refused, redrives(20)}, []Operation{discard, undo}, task.Pending, true},
		"undone":                             {[]*Change{kills, refused}, []Operation{discard, undo}, task.Dead, true},
		"redriven, though it was not undone": {[]*Change{kills, refused, redrives(20)}, []Operation{discard}, task.Pending, false},
		"redriven before it was undone":      {[]*Change{kills, refused, redrives(11.5)}, []Operation{discard, undo}, task.Pending, false},
		"cancelled by a caller, and dead":    {[]*Change{cancels(false, 5, Made), refused}, []Operation{discard, undo}, task.Dead, false},
		"cancelled by a hand, and redriven":  {[]*Change{cancels(true, 5, Made), redrives(20)}, []Operation{discard, undo}, task.Pending, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row := stands(c.status, 10, 0)
			if c.status == task.Pending {
				row.Action = at(20).UnixMilli()
			}
			v := Judge(Evidence{Center: madeUpCenter(), Operations: c.operations, Rows: map[uint64]Row{1: row},
				Histories: []*History{{JobID: 1, BizType: madeUp.Name, Attribute: "a", Changes: c.changes, Known: at(1),
					Submits: []SubmitTry{{Sent: at(0), Answered: at(1), Due: at(10)}}}}})
			require.Equal(t, c.holds, len(v.Broken[Unlinearizable]) == 0, "%v", v.Broken)
		})
	}
}

// A lease is what its row says, and a hand's time ends it.
func TestLeasesOfTheModel(t *testing.T) {
	t.Parallel()
	const ok = client.SettledOK
	kills := asks(Stopped, true, 11, Made, Effect{Status: new(task.Dead)})
	handRedrives := redrives(12)
	handRedrives.Hand, handRedrives.Set.High = true, handRedrives.Set.Low
	justRedrives := redrives(12) // and leaves action_time, so that the lease stands
	justRedrives.Hand, justRedrives.Set.Low, justRedrives.Set.High = true, time.Time{}, time.Time{}
	b := configs.BizType{Name: "pulled", Processor: configs.ProcessorPull, Cuts: 3, MaxRetries: 1, Backoff: madeUp.Backoff}
	ended := []*Fault{{Kind: "crash", Explains: true, Process: &Process{Name: "a.1", Node: "a", Ended: at(11)}, Begin: at(11), End: at(11), Whole: at(12)}}
	wrongAt := func(s float64) []*Fault {
		return []*Fault{{Kind: "clock is wrong", Skew: time.Second, Nodes: []string{"two"}, Begin: at(s), End: at(s + 1), Whole: at(s + 2)}}
	}
	for name, c := range map[string]struct {
		changes []*Change
		holds   []*Hold
		unheard []unheard
		faults  []*Fault
		row     Row
		keeps   bool
	}{
		"acknowledged":            {nil, []*Hold{leased(1, 10, settles(client.Ack, 12, ok))}, nil, nil, stands(task.Processed, 10, 0), true},
		"left at the lease's end": {nil, []*Hold{leased(1, 10, settles(client.Ack, 12, ok))}, nil, nil, stands(task.Processed, 15, 0), false},
		"moved, and leased then": {[]*Change{moves(true, 11, Made, 13)}, []*Hold{leased(1, 10), leased(1, 13, settles(client.Ack, 14, ok))}, nil, nil,
			stands(task.Processed, 13, 0), true},
		"moved, and acknowledged": {[]*Change{moves(true, 11, Made, 13)}, []*Hold{leased(1, 10, settles(client.Ack, 12, ok))}, nil, nil,
			stands(task.Processed, 13, 0), false},
		"moved, and failed": {[]*Change{moves(true, 11, Made, 13)}, []*Hold{leased(1, 10), leased(2, 13, settles(client.Ack, 14, ok))}, nil, nil,
			stands(task.Processed, 13, 1), false},
		"moved, and extended": {[]*Change{moves(true, 11, Made, 13)}, []*Hold{leased(1, 10, settles(client.Extend, 12, ok), settles(client.Ack, 14, ok))}, nil, nil,
			stands(task.Processed, 13, 0), false},
		"killed, redriven, and failed": {[]*Change{kills, redrives(12)}, []*Hold{leased(1, 10), leased(2, 12.5, settles(client.Ack, 14, ok))}, nil, nil,
			stands(task.Processed, 12, 1), false},
		"redriven by hand, and failed": {[]*Change{kills, handRedrives}, []*Hold{leased(1, 10), leased(2, 12.5, settles(client.Ack, 14, ok))}, nil, nil,
			stands(task.Processed, 12, 1), false},
		"redriven by hand, and its lease left": {[]*Change{kills, justRedrives}, []*Hold{leased(1, 10), leased(2, 15.5, settles(client.Ack, 16, ok))}, nil, nil,
			stands(task.Processed, 10, 1), true},
		"redriven by hand, and its lease left out": {[]*Change{kills, justRedrives}, []*Hold{leased(1, 10), leased(1, 13, settles(client.Ack, 16, ok))}, nil, nil,
			stands(task.Processed, 10, 0), false},
		"redriven by hand": {[]*Change{kills, handRedrives}, []*Hold{leased(1, 10), leased(1, 12.5, settles(client.Ack, 14, ok))}, nil, nil,
			stands(task.Processed, 12, 0), true},
		"edited, and given back as it was": {[]*Change{edits(11, "b")}, []*Hold{leased(1, 10, settles(client.Release, 14, ok)), leased(1, 14, settles(client.Ack, 15, ok))},
			nil, nil, stands(task.Processed, 10, 0).with("b"), false},
		"given to nobody":                 {nil, []*Hold{leased(1, 16, settles(client.Ack, 17, ok))}, []unheard{{"pulled", nil, at(10), at(10.5), false}}, nil, stands(task.Processed, 10, 0), true},
		"given to nobody, which counts":   {nil, []*Hold{leased(2, 16, settles(client.Ack, 17, ok))}, []unheard{{"pulled", nil, at(10), at(10.5), false}}, nil, stands(task.Processed, 10, 1), false},
		"nobody has asked":                {nil, []*Hold{leased(2, 16, settles(client.Ack, 17, ok))}, nil, nil, stands(task.Processed, 10, 1), false},
		"over, with its giver":            {nil, []*Hold{leased(1, 10), leased(1, 16, settles(client.Ack, 17, ok))}, nil, ended, stands(task.Processed, 10, 0), true},
		"over, which is no attempt alone": {nil, []*Hold{leased(1, 10), leased(1, 16, settles(client.Ack, 17, ok))}, nil, nil, stands(task.Processed, 10, 0), false},
		"given back by a lost request": {nil, []*Hold{leased(1, 10, settles(client.Release, 12, client.SettledUnavailable)), leased(1, 15, settles(client.Ack, 16, ok))},
			nil, nil, stands(task.Processed, 10, 0), true},
		"given again at its end":           {nil, []*Hold{leased(1, 10), leased(2, 15, settles(client.Ack, 16, ok))}, nil, nil, stands(task.Processed, 10, 1), true},
		"given again just before its end":  {nil, []*Hold{leased(1, 10), leased(2, 14.935, settles(client.Ack, 16, ok))}, nil, nil, stands(task.Processed, 10, 1), false},
		"the same, by a wrong clock":       {nil, []*Hold{leased(1, 10), leased(2, 14.935, settles(client.Ack, 16, ok))}, nil, wrongAt(12), stands(task.Processed, 10, 1), true},
		"the same, by a clock wrong later": {nil, []*Hold{leased(1, 10), leased(2, 14.935, settles(client.Ack, 16, ok))}, nil, wrongAt(30), stands(task.Processed, 10, 1), false},
		"given again before an extended end": {nil, []*Hold{leased(1, 10, settles(client.Extend, 14, ok)), leased(2, 18.9, settles(client.Ack, 20, ok))}, nil, nil,
			stands(task.Processed, 10, 1), false},
		"over, and dead at its own time":   {nil, []*Hold{leased(1, 10), leased(2, 16)}, nil, nil, stands(task.Dead, 10, 2), true},
		"over, and dead at the last's end": {nil, []*Hold{leased(1, 10), leased(2, 16)}, nil, nil, stands(task.Dead, 21, 2), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			center := madeUpCenter()
			center.Types = Types([]configs.BizType{b})
			l := &Leases{tasks: map[uint64]*leasedTask{1: {holds: c.holds}}, unheard: c.unheard}
			v := Judge(Evidence{Center: center, Leases: l, Faults: c.faults, Rows: map[uint64]Row{1: c.row}, Histories: []*History{{JobID: 1, BizType: b.Name, Attribute: "a",
				Changes: c.changes, Known: at(1), Submits: []SubmitTry{{Sent: at(0), Answered: at(1), Due: at(10)}}}}})
			require.Equal(t, c.keeps, len(v.Broken[Unlinearizable]) == 0, "%v", v.Broken)
		})
	}
}
