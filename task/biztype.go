package task

import (
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

// Mode names the engine that finds the due tasks of a business type.
type Mode string

// The engines.
const (
	ModeScan  Mode = "scan"  // cron tick over the owned tables; needs only the database
	ModeRedis Mode = "redis" // slot timer on Redis sorted sets
)

// BizType is a business type: the engine, the processor and the policies that
// all of its tasks share.
type BizType struct {
	ID   uint64 // stored in the rows
	Name string // what users say
	Mode Mode

	Processor string        // name of the registered processor
	Workers   int           // runs at the same time on one node
	Timeout   time.Duration // of one run

	MaxRetries  int           // failed runs that are tried again; a task runs at most MaxRetries+1 times
	BackoffMin  time.Duration // pause after the first failed run
	BackoffMax  time.Duration // longest pause
	Cuts        int           // starts without an end (the process died) that make a task dead; at least 1
	ExpireAfter time.Duration // overdue by more than this: OnExpire; 0 = never
	OnExpire    OnExpire      // "" means OnExpireDead

	RateLimit  int  // runs a second in the whole cluster; 0 = no limit
	MaxRunning int  // runs at the same time in the whole cluster; 0 = no limit
	CatchUp    int  // runs a second of the backlog in the whole cluster; 0 = no limit
	Coalesce   bool // of the overdue tasks of a biz_id only the latest runs

	// Pull is set if consumers lease the tasks: no processor runs them.
	Pull        bool
	TTR         time.Duration // how long a consumer has a task without its own Timeout
	MaxInFlight int           // leases of one node at the same time
}

// IsLimited reports whether a limit holds for the whole cluster.
func (b *BizType) IsLimited() bool { return b.RateLimit > 0 || b.MaxRunning > 0 || b.CatchUp > 0 }

// IsExpired reports whether a task that is late by so much is not to run.
func (b *BizType) IsExpired(late time.Duration) bool {
	return b.ExpireAfter > 0 && late > b.ExpireAfter && b.OnExpire != OnExpireRun
}

// OnExpire is what becomes of a task that is too late.
type OnExpire string

// The values of OnExpire.
const (
	OnExpireDead OnExpire = "dead" // it is dead
	OnExpireSkip OnExpire = "skip" // it is cancelled
	OnExpireRun  OnExpire = "run"  // it runs
)

// Types is an immutable set of business types.
type Types struct {
	list   []BizType
	byID   map[uint64]BizType
	byName map[string]BizType
}

// NewTypes builds a set. Ids and names must be unique.
func NewTypes(list ...BizType) (*Types, error) {
	t := &Types{
		list:   slices.Clone(list),
		byID:   make(map[uint64]BizType, len(list)),
		byName: make(map[string]BizType, len(list)),
	}
	for _, b := range list {
		if _, dup := t.byID[b.ID]; dup {
			return nil, fmt.Errorf("biz_type id %d is used twice", b.ID)
		}
		if _, dup := t.byName[b.Name]; dup {
			return nil, fmt.Errorf("biz_type name %q is used twice", b.Name)
		}
		t.byID[b.ID], t.byName[b.Name] = b, b
	}
	return t, nil
}

// ByID finds a business type by the id that rows carry.
func (t *Types) ByID(id uint64) (BizType, bool) { b, ok := t.byID[id]; return b, ok }

// ByName finds a business type by its name.
func (t *Types) ByName(name string) (BizType, bool) { b, ok := t.byName[name]; return b, ok }

// Find is ByName with an error, an *UnknownTypeError.
func (t *Types) Find(name string) (BizType, error) {
	if b, ok := t.byName[name]; ok {
		return b, nil
	}
	const most = 200 // bytes of names: a batch may need this text 10,000 times
	e, left := &UnknownTypeError{Name: name}, most
	for i, b := range t.list {
		if left -= len(b.Name) + len(", "); left < 0 {
			e.More = len(t.list) - i
			break
		}
		e.Known = append(e.Known, b.Name)
	}
	return BizType{}, e
}

// NameOf gives the name of a business type; of one that is configured no longer its id.
func (t *Types) NameOf(id uint64) string {
	if b, ok := t.byID[id]; ok {
		return b.Name
	}
	return strconv.FormatUint(id, 10)
}

// All lists the business types in the order of the configuration.
func (t *Types) All() []BizType { return t.list }

// Catalog holds the business types in force. A reload of the configuration
// swaps the whole set at once, so every reader sees either the old or the new.
type Catalog struct{ current atomic.Pointer[Types] }

// NewCatalog starts with the given set.
func NewCatalog(t *Types) *Catalog {
	c := &Catalog{}
	c.Store(t)
	return c
}

// Load gives the set in force.
func (c *Catalog) Load() *Types { return c.current.Load() }

// Store puts a new set in force.
func (c *Catalog) Store(t *Types) { c.current.Store(t) }
