package peer

import (
	"context"
	"fmt"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/timeoutcenter/toc/bench/server"
)

// dbosPeer is DBOS Transact: delayed workflows in PostgreSQL.
type dbosPeer struct {
	driver
	pool  *pgxpool.Pool
	dbos  dbos.Context
	queue dbos.Queue
}

// dbosPoll is how often it looks for workflows that are ready.
const dbosPoll = 100 * time.Millisecond

func (p *dbosPeer) Info() Info {
	return Info{
		Name: "dbos", Parts: everything&^Batches | Restarts,
		Settings: fmt.Sprintf("a queue that is polled each %s, 64 workflows at once; pool of 64; delayed workflows become ready once a second, which cannot be set", dbosPoll),
		Durable:  "PostgreSQL, fsync and synchronous_commit on: nothing is lost",
		Precise:  "milliseconds",
	}
}

func (p *dbosPeer) Version(ctx context.Context, _ Env) (string, error) {
	v, err := server.PostgreSQL.Version(ctx)
	return "DBOS Transact Go " + moduleVersion("github.com/dbos-inc/dbos-transact-golang") + ", MIT; " + v, err
}

// dbosInput is what a workflow gets.
type dbosInput struct {
	Task   string    `json:"task"`
	Due    time.Time `json:"due"`
	Number uint64    `json:"number"`
}

func (p *dbosPeer) close(_ dbos.Context, in dbosInput) (string, error) {
	p.fired(in.Due, in.Number)
	return "", nil
}

func (p *dbosPeer) Up(ctx context.Context, env Env) (err error) {
	if p.pool, err = p.startPostgreSQL(ctx, env); err != nil {
		return err
	}
	if p.dbos, err = dbos.NewContext(context.WithoutCancel(ctx), dbos.Config{AppName: "bench", SystemDBPool: p.pool, Logger: errorLog()}); err != nil {
		return err
	}
	dbos.RegisterWorkflow(p.dbos, p.close, dbos.WithWorkflowName("close"))
	if p.queue, err = dbos.RegisterQueue(p.dbos, "tasks", dbos.WithWorkerConcurrency(64), dbos.WithQueueBasePollingInterval(dbosPoll)); err != nil {
		return err
	}
	if err := dbos.Launch(p.dbos); err != nil {
		return err
	}
	p.onDown(func() error { return dbos.Shutdown(p.dbos, 5*time.Second) })
	p.put = func(_ context.Context, _ int, jobs []job) error {
		for _, j := range jobs {
			delay := max(time.Until(j.due), time.Millisecond)
			if _, err := dbos.RunWorkflow(p.dbos, p.close, dbosInput{Attribute, j.due, j.biz}, dbos.WithQueue(p.queue), dbos.WithDelay(delay)); err != nil {
				return err
			}
		}
		return nil
	}
	return nil
}

// Work implements Peer: a queue works from its launch on.
func (p *dbosPeer) Work(context.Context) error { return nil }

func (p *dbosPeer) Done(ctx context.Context) (n int, err error) {
	err = p.pool.QueryRow(ctx, "SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'").Scan(&n)
	return n, err
}
