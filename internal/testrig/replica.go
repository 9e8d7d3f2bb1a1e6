package testrig

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// ReplicatedMySQL is a primary, and a replica that copies it by GTID and is read-only. Root may write to it all the same.
type ReplicatedMySQL struct {
	*PrivateMySQL // the primary
	Replica       *PrivateMySQL

	t               testing.TB
	isMariaDB       bool
	primary, copied *sql.DB
}

// StartReplicatedMySQL starts the pair. The replication is asynchronous: CatchUp waits for it, Lag ends it.
func StartReplicatedMySQL(t testing.TB, options ...Option) *ReplicatedMySQL {
	t.Helper()
	needsServer(t)
	e, err := findMySQL(options...)
	isMariaDB := e.install != ""
	e.flags = append(e.flags, "--log-bin=bin", "--binlog-format=ROW", "--sync-binlog=1")
	if isMariaDB {
		e.flags = append(e.flags, "--gtid-strict-mode=ON", "--log-slave-updates")
	} else {
		e.flags = append(e.flags, "--gtid-mode=ON", "--enforce-gtid-consistency=ON")
	}
	servers := make([]*server, 2)
	if err == nil {
		g, ctx := errgroup.WithContext(t.Context())
		for i := range servers {
			engine := e
			engine.flags = append(slices.Clone(e.flags), Option(fmt.Sprintf("--server-id=%d", i+1)), Option(fmt.Sprintf("--read-only=%d", i)))
			g.Go(func() (err error) {
				servers[i], err = launch(ctx, engine)
				return err
			})
		}
		err = g.Wait()
	}
	private := make([]*PrivateMySQL, 2)
	for i, s := range servers {
		if s != nil {
			private[i] = &PrivateMySQL{MySQLServer{addr: s.addr(), auth: "root", prefix: uniquePrefix()}, keepPrivate(t, s)}
		}
	}
	if err != nil {
		t.Fatalf("testrig: this test needs a primary and a replica of its own: %v", err)
	}
	p := &ReplicatedMySQL{private[0], private[1], t, isMariaDB, private[0].DB(t), private[1].DB(t)}
	follow := "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=%d, SOURCE_USER='root', SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1"
	if isMariaDB {
		follow = "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, MASTER_USER='root', MASTER_USE_GTID=slave_pos"
	}
	p.on(p.copied, fmt.Sprintf(follow, servers[0].port))
	p.on(p.copied, "START REPLICA")
	return p
}

// Follow lets the replica receive again, after a Lag.
func (p *ReplicatedMySQL) Follow() { p.t.Helper(); p.on(p.copied, "START REPLICA IO_THREAD") }

// Lag lets the replica receive nothing more.
func (p *ReplicatedMySQL) Lag() { p.t.Helper(); p.on(p.copied, "STOP REPLICA IO_THREAD") }

// SemiSync makes a commit wait, for so long at most, until the replica has it in its relay log.
func (p *ReplicatedMySQL) SemiSync(most time.Duration) {
	p.t.Helper()
	source, replica := "master", "slave"
	if !p.isMariaDB {
		source, replica = "source", "replica"
		p.on(p.primary, "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
		p.on(p.copied, "INSTALL PLUGIN rpl_semi_sync_replica SONAME 'semisync_replica.so'")
	}
	p.on(p.copied, "SET GLOBAL rpl_semi_sync_"+replica+"_enabled=1")
	p.Lag()
	p.Follow() // as one that acknowledges
	for name, value := range map[string]any{"wait_point": "'AFTER_SYNC'", "timeout": most.Milliseconds(), "enabled": 1} {
		p.on(p.primary, fmt.Sprintf("SET GLOBAL rpl_semi_sync_%s_%s=%v", source, name, value))
	}
}

// CatchUp waits until the replica has each commit of the primary.
func (p *ReplicatedMySQL) CatchUp() {
	p.t.Helper()
	p.awaitApplied(p.Commits(p.PrivateMySQL))
}

// Promote makes the replica a primary, once it has applied what it has received. The old primary may be gone.
func (p *ReplicatedMySQL) Promote() {
	p.t.Helper()
	p.Lag()
	received, err := p.received()
	p.must("ask what it has received", err)
	p.awaitApplied(received)
	p.on(p.copied, "STOP REPLICA")
	p.on(p.copied, "RESET REPLICA ALL")
	p.on(p.copied, "SET GLOBAL read_only=0")
}

// Commits names all commits of one of the two: it changes with each.
func (p *ReplicatedMySQL) Commits(of *PrivateMySQL) (position string) {
	p.t.Helper()
	variable := "gtid_executed"
	if p.isMariaDB {
		variable = "gtid_current_pos"
	}
	p.must("ask for its position", of.DB(p.t).QueryRowContext(p.t.Context(), "SELECT @@global."+variable).Scan(&position))
	return position
}

// awaitApplied waits until the replica has the commits of a position.
func (p *ReplicatedMySQL) awaitApplied(position string) {
	p.t.Helper()
	wait := "SELECT WAIT_FOR_EXECUTED_GTID_SET(?, 60)"
	if p.isMariaDB {
		wait = "SELECT MASTER_GTID_WAIT(?, 60)"
	}
	var late bool
	err := p.copied.QueryRowContext(p.t.Context(), wait, position).Scan(&late)
	if err == nil && late {
		err = errors.New("it has not applied " + position)
	}
	p.must("wait", err)
}

// received is the last position that the replica has in its relay log.
func (p *ReplicatedMySQL) received() (position string, err error) {
	column := "Retrieved_Gtid_Set"
	if p.isMariaDB {
		column = "Gtid_IO_Pos"
	}
	rows, err := p.copied.QueryContext(p.t.Context(), "SHOW REPLICA STATUS")
	if err != nil {
		return "", err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return "", err
	}
	cells := make([]sql.RawBytes, len(columns))
	into := make([]any, len(cells))
	for i := range cells {
		into[i] = &cells[i]
	}
	if !rows.Next() {
		return "", errors.Join(rows.Err(), errors.New("it is no replica"))
	}
	err = rows.Scan(into...)
	return string(cells[slices.Index(columns, column)]), err
}

func (p *ReplicatedMySQL) on(server *sql.DB, statement string) {
	p.t.Helper()
	_, err := server.ExecContext(p.t.Context(), statement)
	p.must(statement, err)
}

func (p *ReplicatedMySQL) must(do string, err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatalf("testrig: the replica: %s: %v", do, err)
	}
}
