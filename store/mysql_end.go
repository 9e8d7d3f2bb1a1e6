package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
)

// end sees to it that the server stops working on what a connection was sent, and
// tells whether it has. A server does not look whether its client is still there
// while it waits for a lock. kill: it is told to stop; else it is only watched.
func (b *mysqlBackend) end(database int, lost *mysqlConn, kill bool) (over bool) {
	ctx, cancel := context.WithTimeout(context.Background(), endPatience(b.timeout))
	defer cancel()
	conn, err := b.pings[database].Conn(ctx)
	if err != nil {
		return false
	}
	defer conn.Close()
	// The numbers of connections are a server's own, and it begins anew when it restarts.
	const ask = "SELECT " + hostText + ", (SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID=? AND DB<=>DATABASE())"
	for {
		var host sql.NullString
		var there int
		if err := conn.QueryRowContext(ctx, ask, lost.id).Scan(&host, &there); err != nil || host.String != lost.host {
			return false
		}
		if there == 0 {
			return true
		}
		if kill {
			if _, err := conn.ExecContext(ctx, "KILL "+lost.id); err != nil && mysqlCode(err) != erNoSuchThread {
				return false
			}
		}
		if wait.For(ctx, 10*time.Millisecond) != nil {
			return false
		}
	}
}
