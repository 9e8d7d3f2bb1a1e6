package kafka

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A fetch that fails has no id of the topic. The records that came before it keep theirs, and so do those after it: with another
// id a record that is read again would make a second task.
func TestAFailedFetchHasNoTopicID(t *testing.T) {
	id, again := topicID{1}, topicID{2}
	var ids topicIDs
	ask := func(id topicID) topicID { return ids.of(kgo.FetchTopic{Topic: "timers", TopicID: id}, "main") }
	names := ask(topicID{})
	require.NotEqual(t, topicID{}, names)
	require.Equal(t, names, ask(topicID{}), "brokers without ids")
	require.Equal(t, id, ask(id))
	require.Equal(t, id, ask(topicID{}))
	require.Equal(t, again, ask(again), "the topic was deleted and made again")

	p := newPartition(&Reader{}, 3)
	record := func(offset int64) *kgo.Record {
		return &kgo.Record{Partition: 3, Offset: offset, Headers: []kgo.RecordHeader{{Key: headerBizType, Value: []byte("orders")},
			{Key: headerBizID, Value: []byte("42")}, {Key: headerActionTime, Value: []byte("1790000000000")}}, Value: []byte("x")}
	}
	p.add(names, nil, 0)
	p.add(id, []*kgo.Record{record(7)}, 100)
	p.add(names, nil, 0)
	p.add(again, []*kgo.Record{record(0)}, 1)
	require.EqualValues(t, 100, p.replay, "up to there older records of a key may come again")
	p.takeOver()
	require.Len(t, p.open, 2)
	require.Equal(t, "k:AQAAAAAAAAAAAAAAAAAAAA:3:7", p.open[0].request.submit.DedupKey)
	require.Equal(t, "k:AgAAAAAAAAAAAAAAAAAAAA:3:0", p.open[1].request.submit.DedupKey)
}

// A record that has waited for a minute at the head of its partition is shown.
func TestARecordThatWaitsLong(t *testing.T) {
	p := newPartition(nil, 3)
	r := &Reader{partitions: map[int32]*partition{3: p}}
	p.reader = r
	p.open = []*entry{{record: &kgo.Record{Offset: 7}}, {record: &kgo.Record{Offset: 8}, settled: true}}
	p.advance()
	require.Empty(t, r.Waits())
	p.open[0].fail(errors.New("the store is away"))
	p.advance()
	require.Empty(t, r.Waits(), "it has not waited for long")
	p.open[0].failed = p.open[0].failed.Add(-time.Minute)
	p.open[0].fail(errors.New("the store is still away"))
	p.advance()
	require.Contains(t, r.Waits(), "the record at offset 7 of partition 3 waits since ")
	require.Contains(t, r.Waits(), ": the store is still away")
}
