package kafka

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/timeoutcenter/toc/internal/testrig"
)

// The table of docs/production.md has the times of each client.
func TestTheTableOfConnectionsIsTrue(t *testing.T) {
	require.Equal(t, []string{
		fmt.Sprintf("by a request, after %s, of a write %s, of a read %s", answerTime, writeTime, readTime), idleTime.String(),
		"never while it is used; a broker's new address is read within " + metadataAge.String(),
	}, testrig.DocsRow(t, "../../docs/production.md", "Kafka"))
	options, err := Cluster{Brokers: []string{"127.0.0.1:1"}}.Options()
	require.NoError(t, err)
	client, err := kgo.NewClient(options...)
	require.NoError(t, err)
	defer client.Close()
	require.Equal(t, answerTime, client.OptValue(kgo.DialTimeout))
	require.Equal(t, answerTime, client.OptValue(kgo.RequestTimeoutOverhead))
	require.Equal(t, idleTime, client.OptValue(kgo.ConnIdleTimeout))
	require.Equal(t, metadataAge, client.OptValue(kgo.MetadataMaxAge))
}
