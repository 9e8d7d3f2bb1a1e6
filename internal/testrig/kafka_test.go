package testrig_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// What a broker has acknowledged it has after a kill, at the same address.
func TestKafkaKeepsItsRecords(t *testing.T) {
	t.Parallel()
	k := testrig.StartKafka(t)
	k.CreateTopic("timers", 2)
	c, err := kgo.NewClient(kgo.SeedBrokers(k.Addr()), kgo.DefaultProduceTopic("timers"), kgo.ConsumeTopics("timers"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.ProduceSync(t.Context(), kgo.StringRecord("a")).FirstErr())
	k.Kill()
	k.Start()
	ctx := await.Context(t)
	require.NoError(t, c.ProduceSync(ctx, kgo.StringRecord("b")).FirstErr())
	var seen []string
	for len(seen) < 2 {
		f := c.PollFetches(ctx)
		require.NoError(t, ctx.Err())
		f.EachRecord(func(r *kgo.Record) { seen = append(seen, string(r.Value)) })
	}
	require.ElementsMatch(t, []string{"a", "b"}, seen)
}
