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
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

func (p *riverPeer) Info() Info {
	return Info{
		Name: "river", Parts: everything,
		Settings: "1,000 workers, FetchCooldown 20 ms, FetchPollInterval 100 ms; batches by InsertManyFast; pool of 64; its scheduler looks every 5 s, which cannot be set",
		Durable:  "PostgreSQL, fsync and synchronous_commit on: nothing is lost",
		Precise:  "microseconds",
	}
}

func (p *riverPeer) Version(ctx context.Context, _ Env) (string, error) {
	v, err := server.PostgreSQL.Version(ctx)
	return "River " + moduleVersion("github.com/riverqueue/river") + "; " + v, err
}

// riverArgs is a job's arguments.
type riverArgs struct {
	Order string    `json:"order"`
	Why   string    `json:"reason"`
	Due   time.Time `json:"due"`
}

// Kind implements river.JobArgs.
func (riverArgs) Kind() string { return "bench" }

func (p *riverPeer) Up(ctx context.Context, env Env) error {
	s, err := p.start(ctx, server.PostgreSQL, env)
	if err != nil {
		return err
	}
	cfg, err := pgxpool.ParseConfig("postgres://postgres@" + s.Addr + "/postgres?sslmode=disable")
	if err != nil {
		return err
	}
	cfg.MaxConns = 64
	if p.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return err
	}
	p.onDown(func() error { p.pool.Close(); return nil })
	driver := riverpgxv5.New(p.pool)
	if err := p.awaitServer(ctx); err != nil {
		return err
	}
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: riverLog()})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, j *river.Job[riverArgs]) error {
		p.fired(j.Args.Due)
		return nil
	}))
	p.client, err = river.NewClient(driver, &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1000}}, Workers: workers, Logger: riverLog(),
		FetchCooldown: 20 * time.Millisecond, FetchPollInterval: 100 * time.Millisecond,
	})
	p.put = p.insert
	return err
}

// awaitServer waits until PostgreSQL has finished starting: it answers before that.
func (p *riverPeer) awaitServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		err := p.pool.Ping(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func riverLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

func riverJob(j job) (riverArgs, *river.InsertOpts) {
	return riverArgs{"4711", "unpaid", j.due}, &river.InsertOpts{ScheduledAt: j.due, MaxAttempts: 17}
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
