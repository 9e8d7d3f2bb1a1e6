package peer

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/timeoutcenter/toc/bench/server"
)

// riverPeer is riverqueue/river: jobs in PostgreSQL.
type riverPeer struct {
	driver
	retention time.Duration
	pool      *pgxpool.Pool
	client    *river.Client[pgx.Tx]
}

func (p *riverPeer) Info() Info {
	return Info{
		Name: "river", Parts: everything | Restarts | Purges,
		Settings: "1,000 workers, FetchCooldown 20 ms, FetchPollInterval 100 ms; batches by InsertManyFast; pool of 64; its scheduler looks every 5 s, which cannot be set",
		Durable:  "PostgreSQL, fsync and synchronous_commit on: nothing is lost",
		Precise:  "microseconds",
	}
}

func (p *riverPeer) Version(ctx context.Context, _ Env) (string, error) {
	v, err := server.PostgreSQL.Version(ctx)
	return "River " + moduleVersion("github.com/riverqueue/river") + ", MPL-2.0; " + v, err
}

// riverArgs is a job's arguments.
type riverArgs struct {
	Order  string    `json:"order"`
	Why    string    `json:"reason"`
	Due    time.Time `json:"due"`
	Number uint64    `json:"number"`
}

// Kind implements river.JobArgs.
func (riverArgs) Kind() string { return "bench" }

func (p *riverPeer) Up(ctx context.Context, env Env) error {
	p.retention = env.Retention
	var err error
	if p.pool, err = p.startPostgreSQL(ctx, env); err != nil {
		return err
	}
	driver := riverpgxv5.New(p.pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: errorLog()})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, j *river.Job[riverArgs]) error {
		p.fired(j.Args.Due, j.Args.Number)
		return nil
	}))
	p.client, err = river.NewClient(driver, &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1000}}, Workers: workers, Logger: errorLog(),
		CompletedJobRetentionPeriod: p.retention, FetchCooldown: 20 * time.Millisecond, FetchPollInterval: 100 * time.Millisecond,
	})
	p.put = p.insert
	return err
}

// startPostgreSQL starts the server, and gives a pool of 64 connections once it has finished starting: it answers before that.
func (d *driver) startPostgreSQL(ctx context.Context, env Env) (*pgxpool.Pool, error) {
	s, err := d.start(ctx, server.PostgreSQL, env)
	if err != nil {
		return nil, err
	}
	cfg, err := pgxpool.ParseConfig("postgres://postgres@" + s.Addr + "/postgres?sslmode=disable")
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 64
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), cfg)
	if err != nil {
		return nil, err
	}
	d.onDown(func() error { pool.Close(); return nil })
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		err := pool.Ping(ctx)
		if err == nil || ctx.Err() != nil {
			return pool, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func errorLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

func riverJob(j job) (riverArgs, *river.InsertOpts) {
	return riverArgs{"4711", "unpaid", j.due, j.biz}, &river.InsertOpts{ScheduledAt: j.due, MaxAttempts: 17}
}

func (p *riverPeer) insert(ctx context.Context, _ int, jobs []job) error {
	if len(jobs) == 1 {
		args, opts := riverJob(jobs[0])
		_, err := p.client.Insert(ctx, args, opts)
		return err
	}
	list := make([]river.InsertManyParams, len(jobs))
	for i, j := range jobs {
		list[i].Args, list[i].InsertOpts = riverJob(j)
	}
	n, err := p.client.InsertManyFast(ctx, list)
	if err == nil && n != len(jobs) {
		err = errors.New("not all jobs were inserted")
	}
	return err
}

func (p *riverPeer) Work(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if err := p.client.Start(ctx); err != nil {
		return err
	}
	p.onDown(func() error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return p.client.StopAndCancel(ctx)
	})
	return nil
}

func (p *riverPeer) Done(ctx context.Context) (n int, err error) {
	err = p.pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE state = 'completed' AND finalized_at IS NOT NULL").Scan(&n)
	return n, err
}

// Rows implements Purged.
func (p *riverPeer) Rows(ctx context.Context) (n int, err error) {
	err = p.pool.QueryRow(ctx, "SELECT count(*) FROM river_job").Scan(&n)
	return n, err
}
