package app

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/queue/limits"
	"github.com/timeoutcenter/toc/task"
)

type ownsAll struct{}

func (ownsAll) Term(int) uint64                           { return 1 }
func (ownsAll) TakenUncleanly(int) (at time.Time, _ bool) { return at, false }

// A node that stops gives back what another one has lent in an answer that did not arrive: else that one would miss it for the type's time-out.
func TestALostLoanIsGivenBack(t *testing.T) {
	lender := limits.New(limits.Config{Partitions: 1, Ownership: ownsAll{}})
	lender.SetTypes([]task.BizType{{ID: 1, Name: "a", MaxRunning: 1, Timeout: time.Minute}})
	take := func() int {
		n, _, _ := lender.Of(1).Take(1, 1, false)
		return n
	}
	lost := []limits.Ask{{BizType: "a", Permits: 1}}
	require.Equal(t, 1, lender.Answer("n2 X", 1, lost)[0].Permits)
	require.Zero(t, take())
	lender.Answer("n2 X", 2, giveBack(nil, lost))
	require.Equal(t, 1, take())
	require.Equal(t, lost, giveBack(lost, lost), "it is asked for already")
}
