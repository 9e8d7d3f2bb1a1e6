package kafka

import (
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/timeoutcenter/toc/internal/tlsclient"
)

// connects keeps why the last connection to a broker failed, until one succeeds. The client tries again in silence until a run's
// time is over, and the error is then of the time alone.
type connects struct{ failed atomic.Pointer[error] }

var _ kgo.HookBrokerConnect = (*connects)(nil)

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (c *connects) OnBrokerConnect(broker kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err == nil {
		c.failed.Store(nil)
		return
	}
	err = fmt.Errorf("no connection to broker %s: %w", net.JoinHostPort(broker.Host, strconv.Itoa(int(broker.Port))), tlsclient.Cause(err))
	c.failed.Store(&err)
}

// explain adds to an error why there is no connection.
func (c *connects) explain(err error) error {
	err = tlsclient.Cause(err)
	if failed := c.failed.Load(); failed != nil {
		return fmt.Errorf("%w: %w", *failed, err)
	}
	return err
}
