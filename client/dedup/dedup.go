// Package dedup is for receivers of tasks: it does the work of each job_id once, although a call may come twice.
//
// A key is done, under way, or new. What is done is remembered in memory and, if the receiver has several processes or may
// restart, in Redis. If the process crashes after the work but before it is remembered, the work is
// done again. If the work must never be done twice, write the job_id into the receiver's own database, in the transaction of the work.
package dedup

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2/expirable"
	"github.com/redis/go-redis/v9"
)

// ErrUnderWay answers a call while another one does the work of the same key. A webhook answers 503 to it; toc then calls
// again.
var ErrUnderWay = errors.New("dedup: another call does this work now")

// Config configures a Dedup.
type Config struct {
	// Redis is shared by all processes of the receiver; nil: this process alone remembers.
	Redis redis.UniversalClient
	// Prefix begins the keys in Redis. Defaults to "toc:done:".
	Prefix string
	// Keep is how long a key is remembered. toc may call again until the retries of a task are used up: about 75 minutes by
	// default. Defaults to 7 days.
	Keep time.Duration
	// Size is how many keys are kept in memory, the latest. Defaults to 100,000.
	Size int
	// Timeout is after how long work that has not ended counts as given up, because its process died: longer than the work
	// ever takes. Defaults to 5 minutes.
	Timeout time.Duration
}

// Dedup remembers what is done. It is safe for concurrent use.
type Dedup struct {
	cfg      Config
	done     *lru.LRU[string, struct{}]
	underWay sync.Map // by key
}

// New makes a Dedup that remembers nothing yet.
func New(cfg Config) *Dedup {
	cfg.Prefix, cfg.Keep = cmp.Or(cfg.Prefix, "toc:done:"), cmp.Or(cfg.Keep, 7*24*time.Hour)
	cfg.Size, cfg.Timeout = cmp.Or(cfg.Size, 100_000), cmp.Or(cfg.Timeout, 5*time.Minute)
	return &Dedup{cfg: cfg, done: lru.NewLRU[string, struct{}](cfg.Size, nil, cfg.Keep)}
}

// Do does the work of a key, a job_id say, unless it is done already: then it returns nil at once. If work returns an error
// or panics, the key is new again. It returns ErrUnderWay while another call does the work, and an error of Redis if that
// cannot say: then nothing was done.
func (d *Dedup) Do(ctx context.Context, key string, work func(ctx context.Context) error) error {
	if d.done.Contains(key) {
		return nil
	}
	if _, busy := d.underWay.LoadOrStore(key, nil); busy {
		return ErrUnderWay
	}
	defer d.underWay.Delete(key)
	if d.done.Contains(key) { // by the call before
		return nil
	}
	token := rand.Text()
	if done, err := d.lock(ctx, key, token); err != nil || done {
		return err
	}
	ok := false
	defer func() {
		if !ok {
			d.unlock(ctx, key, token)
		}
	}()
	if err := work(ctx); err != nil {
		return err
	}
	ok = true
	d.remember(ctx, key)
	return nil
}

// isDone is the value of a key in Redis whose work is done; before, it is the token of the call that does it.
const isDone = "done"

// lock keeps other processes from the work, and reports whether it is done already.
func (d *Dedup) lock(ctx context.Context, key, token string) (done bool, err error) {
	if d.cfg.Redis == nil {
		return false, nil
	}
	free, err := d.cfg.Redis.SetNX(ctx, d.cfg.Prefix+key, token, d.cfg.Timeout).Result()
	if err == nil && free {
		return false, nil
	}
	was := ""
	if err == nil {
		was, err = d.cfg.Redis.Get(ctx, d.cfg.Prefix+key).Result()
	}
	switch {
	case was == isDone:
		d.done.Add(key, struct{}{})
		return true, nil
	case err == nil || errors.Is(err, redis.Nil): // or was until a moment ago
		return false, ErrUnderWay
	}
	return false, fmt.Errorf("dedup: %w", err)
}

// afterwards bounds the calls of Redis after the work.
const afterwards = 2 * time.Second

// unlock deletes a lock if it is still the call's own. If that fails, the lock ends by its time-out.
func (d *Dedup) unlock(ctx context.Context, key, token string) {
	if d.cfg.Redis == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterwards)
	defer cancel()
	_ = unlock.Run(ctx, d.cfg.Redis, []string{d.cfg.Prefix + key}, token).Err()
}

var unlock = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

// remember records that the work of a key is done. If Redis fails, only this process has the record.
func (d *Dedup) remember(ctx context.Context, key string) {
	d.done.Add(key, struct{}{})
	if d.cfg.Redis == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterwards)
	defer cancel()
	_ = d.cfg.Redis.Set(ctx, d.cfg.Prefix+key, isDone, d.cfg.Keep).Err()
}
