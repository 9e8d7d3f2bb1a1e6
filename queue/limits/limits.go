// Package limits decides how many runs of a business type may start now, so that its rate_limit, max_running and
// catch_up hold for the whole cluster.
//
// A limit is cut into units, and each unit belongs to a partition. The owner of the partition has the unit: a
// part of the rate, or the permit for one run. A partition has one owner at a time, so all nodes together never have
// more than the limit, and a unit moves with its partition. A node lends its unused units to the nodes that ask; see
// lend.go.
//
// The package does no input or output, and starts nothing.
package limits

import (
	"hash/fnv"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// Kind is a limit, a label value of the metrics.
type Kind string

// The kinds.
const (
	Rate    Kind = "rate"     // rate_limit
	Running Kind = "running"  // max_running
	CatchUp Kind = "catch_up" // catch_up
)

// LateAfter is how long after its time a task belongs to the backlog that catch_up limits.
const LateAfter = 10 * time.Second

// Ownership has the partitions of this node; see cluster.Ownership.
type Ownership interface {
	Term(partition int) uint64
	TakenUncleanly(partition int) (at time.Time, ok bool)
}

// Config configures Limits.
type Config struct {
	Partitions int
	Ownership  Ownership
	// Gap is about how long the partitions of a node that was killed have no owner; 0: this is the only node. The
	// runs of a node that is only cut off continue up to their time-out: until then its permits are not used.
	Gap time.Duration
}

// Limits are the limits of this node's business types. It is safe for concurrent use.
type Limits struct {
	cfg Config

	mu      sync.Mutex
	types   map[uint64]*Type
	names   map[string]*Type // the same
	known   map[uint64]*Type // also of types that have no limits now: their runs and loans last longer
	terms   []uint64         // by partition, as of the last look
	changed uint64           // grows when terms change
	looked  time.Time
	taken   []time.Time    // by partition: when it was taken uncleanly; zero: cleanly
	silent  time.Time      // since when another node does not answer; zero: all answer
	makesUp time.Time      // until when this node makes up for a silence that has ended
	asked   map[string]int // the last seq, by asker
}

// New makes Limits without business types.
func New(cfg Config) *Limits {
	return &Limits{
		cfg: cfg, known: map[uint64]*Type{}, terms: make([]uint64, cfg.Partitions), taken: make([]time.Time, cfg.Partitions),
		asked: map[string]int{},
	}
}

// SetSilent says whether another node does not answer. It may be dead, so that its part of the rates is missing until others
// have its partitions; see makeUp.
func (l *Limits) SetSilent(silent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case silent && l.silent.IsZero():
		l.silent = time.Now()
	case !silent && !l.silent.IsZero():
		now := time.Now()
		l.makesUp, l.silent = now.Add(min(now.Sub(l.silent), 2*l.cfg.Gap)), time.Time{}
	}
}

// Type is the limits of one business type.
type Type struct {
	limits     *Limits
	name       string
	first      int // the partition of the first unit
	changed    uint64
	timeout    time.Duration
	maxRunning int
	rate       bucket
	catchUp    bucket

	running  int       // started and not ended, on this node
	permits  int       // of this node's partitions, in use or not
	recount  time.Time // when more of them may be used; zero: all may
	waiting  int       // tasks that waited at the last refusal of a permit
	short    time.Time // when a permit was last refused
	throttle map[Kind]uint64

	loans map[string]*loan // by borrower
	debts map[string]*debt // by lender
}

// SetTypes replaces the business types. A type that comes back still has its runs and loans.
func (l *Limits) SetTypes(types []task.BizType) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.types, l.names = make(map[uint64]*Type), make(map[string]*Type)
	for _, b := range types {
		if !b.IsLimited() {
			continue
		}
		t := l.known[b.ID]
		if t == nil {
			h := fnv.New32a()
			_, _ = h.Write([]byte(strconv.FormatUint(b.ID, 10)))
			t = &Type{limits: l, first: int(h.Sum32() % uint32(l.cfg.Partitions)), throttle: map[Kind]uint64{}}
			l.known[b.ID] = t
		}
		t.name, t.timeout, t.maxRunning, t.changed = b.Name, b.Timeout, b.MaxRunning, 0
		t.rate.perSecond, t.catchUp.perSecond = float64(b.RateLimit), float64(b.CatchUp)
		l.types[b.ID], l.names[b.Name] = t, t
	}
}

// Of returns the limits of a business type; nil: it has none.
func (l *Limits) Of(bizType uint64) *Type {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.types[bizType]
}

// lookEvery is the interval at which the partitions of this node are looked through. It bounds how long a refused caller waits, since
// partitions and loans may have come.
const lookEvery = 50 * time.Millisecond

// look records which partitions this node owns.
func (l *Limits) look(now time.Time) {
	l.looked = now
	changed := l.changed == 0
	for p := range l.terms {
		term := l.cfg.Ownership.Term(p)
		if term == l.terms[p] {
			continue
		}
		changed, l.terms[p], l.taken[p] = true, term, time.Time{}
		if at, unclean := l.cfg.Ownership.TakenUncleanly(p); term != 0 && unclean {
			l.taken[p] = at
		}
	}
	if changed {
		l.changed++
	}
}

// update brings the shares and buckets up to date.
func (t *Type) update(now time.Time) {
	l := t.limits
	if now.Sub(l.looked) >= lookEvery {
		l.look(now)
	}
	more := 0.0
	if now.Sub(l.silent) < 2*l.cfg.Gap || now.Before(l.makesUp) { // of a gap twice as long as usual
		more = makeUp
	}
	t.rate.accrue(now, more)
	t.catchUp.accrue(now, more)
	if t.changed == l.changed && (t.recount.IsZero() || now.Before(t.recount)) {
		return
	}
	t.permits, t.recount = 0, time.Time{}
	for p, term := range l.terms {
		if term != 0 {
			t.addPermits(p, now)
		}
	}
	t.rate.share, t.catchUp.share = t.share(t.rate.perSecond), t.share(t.catchUp.perSecond)
	t.changed = l.changed
}

// share is the part of a rate that this node has. A partition alone has a rate of 1 a second or more.
func (t *Type) share(perSecond float64) float64 {
	mine, all := 0, min(t.limits.cfg.Partitions, max(1, int(perSecond)))
	for p, term := range t.limits.terms {
		if term != 0 {
			mine += t.unitsIn(all, p)
		}
	}
	return float64(mine) / float64(all)
}

// unitsIn is how many of n units belong to a partition. The units are spread evenly over the partitions.
func (t *Type) unitsIn(n, partition int) int {
	all := t.limits.cfg.Partitions
	k := (partition - t.first + all) % all
	return ((k+1)*n+all-1)/all - (k*n+all-1)/all
}

// addPermits adds the permits of a partition of this node. If its owner before did not hand it over, that one's
// runs may continue up to their time-out.
func (t *Type) addPermits(p int, now time.Time) {
	n := t.unitsIn(t.maxRunning, p)
	if n == 0 {
		return
	}
	if free := t.freeFrom(p); free.After(now) {
		if t.recount.IsZero() || free.Before(t.recount) {
			t.recount = free
		}
		return
	}
	t.permits += n
}

// freeFrom is when the permits of a partition of this node may be used; zero: from the start.
func (t *Type) freeFrom(p int) time.Time {
	if at := t.limits.taken[p]; t.limits.cfg.Gap > 0 && !at.IsZero() {
		return at.Add(t.timeout + loanFor)
	}
	return time.Time{}
}

// Withholds reports whether permits of a partition of this node are not used yet, because its owner before did not hand it over.
// Who has it next must not use them either.
func (l *Limits) Withholds(partition int) bool {
	if l == nil {
		return false
	}
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.known) == 0 {
		return false
	}
	l.look(now)
	for _, t := range l.known {
		if t.unitsIn(t.maxRunning, partition) > 0 && t.freeFrom(partition).After(now) {
			return true
		}
	}
	return false
}

// bucket is a token bucket. It fills at this node's share of the rate.
type bucket struct {
	perSecond float64 // of the whole cluster; 0: no limit
	share     float64 // of this node, from 0 to 1
	tokens    float64
	filled    time.Time

	aside float64              // tokens that are set aside for poor nodes that ask
	poor  map[string]time.Time // when each of them asked last

	short   time.Time // when a token was last refused
	waiting int       // tasks that waited then
}

const (
	// burst is the seconds of the rate that a bucket can hold.
	burst = 0.1
	// makeUp is the part of its rate that a node runs beyond it while another node is silent, and for as long after that. So the
	// cluster stays within a tenth of the limit, also if the other one runs on.
	makeUp = 0.085
)

func (b *bucket) most() float64 { return max(1, b.perSecond*burst) }

// accrue adds the tokens of the time since the last call, and more of them by that part. A part is set aside for the nodes that ask.
func (b *bucket) accrue(now time.Time, more float64) {
	if b.perSecond == 0 {
		*b = bucket{}
		return
	}
	passed := min(now.Sub(b.filled).Seconds(), 1)
	b.filled = now
	if passed <= 0 {
		return
	}
	n := passed * b.perSecond * b.share * (1 + more)
	maps.DeleteFunc(b.poor, func(_ string, asked time.Time) bool { return now.Sub(asked) > askingFor })
	askers := float64(len(b.poor))
	set := n * askers / (askers + 1)
	b.aside = min(b.aside+set, b.most())
	b.tokens = min(b.tokens+n-set, b.most())
}

// refuse records that tasks wait, and returns how long until there is a token, about.
func (b *bucket) refuse(now time.Time, waiting int) time.Duration {
	b.short, b.waiting = now, waiting
	if perSecond := b.perSecond * b.share; perSecond > 0 {
		return min(lookEvery, max(time.Millisecond, time.Duration((1-b.tokens)/perSecond*float64(time.Second))))
	}
	return lookEvery
}

// Take takes leave for the start of up to most of waiting tasks, and returns for how many. late says that they belong to
// the backlog. If none may start, it returns the limit and how long to wait.
func (t *Type) Take(most, waiting int, late bool) (n int, by Kind, wait time.Duration) {
	now := time.Now()
	t.limits.mu.Lock()
	defer t.limits.mu.Unlock()
	t.update(now)
	if t.maxRunning > 0 {
		if most = min(most, t.freePermits(now)); most <= 0 {
			t.short, t.waiting = now, waiting
			return t.refused(Running, lookEvery)
		}
	}
	if t.rate.perSecond > 0 {
		if most = min(most, int(t.rate.tokens)); most <= 0 {
			return t.refused(Rate, t.rate.refuse(now, waiting))
		}
	}
	if late && t.catchUp.perSecond > 0 {
		if most = min(most, int(t.catchUp.tokens)); most <= 0 {
			return t.refused(CatchUp, t.catchUp.refuse(now, waiting))
		}
	}
	t.count(most, late)
	return most, "", 0
}

func (t *Type) refused(by Kind, wait time.Duration) (int, Kind, time.Duration) {
	t.throttle[by]++
	return 0, by, wait
}

// GiveBack gives back the leave for tasks that did not start.
func (t *Type) GiveBack(n int, late bool) {
	t.limits.mu.Lock()
	defer t.limits.mu.Unlock()
	t.count(-n, late)
}

func (t *Type) count(n int, late bool) {
	t.running += n
	t.rate.tokens = min(t.rate.tokens-float64(n), t.rate.most())
	if late {
		t.catchUp.tokens = min(t.catchUp.tokens-float64(n), t.catchUp.most())
	}
}

// Adopt counts runs that started while their type had no limits.
func (t *Type) Adopt(n int) {
	t.limits.mu.Lock()
	defer t.limits.mu.Unlock()
	t.running += n
}

// End counts a run that has ended.
func (t *Type) End() {
	t.limits.mu.Lock()
	defer t.limits.mu.Unlock()
	t.running--
}

// Settled reports whether no run uses a permit that this node does not have any more, because its partition is lost.
func (l *Limits) Settled() bool {
	if l == nil {
		return true
	}
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.known) == 0 {
		return true
	}
	l.look(now)
	for _, t := range l.known {
		if t.update(now); t.maxRunning > 0 && t.freePermits(now) < 0 {
			return false
		}
	}
	return true
}

// Throttled returns how often starts were refused, and by which limit the last second's were; "": by none.
func (l *Limits) Throttled(bizType uint64) (counts map[Kind]uint64, now Kind) {
	counts = make(map[Kind]uint64)
	t := l.Of(bizType)
	if t == nil {
		return counts, ""
	}
	at := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, short := range map[Kind]time.Time{Running: t.short, Rate: t.rate.short, CatchUp: t.catchUp.short} {
		counts[k] = t.throttle[k]
		if !short.IsZero() && at.Sub(short) < time.Second && (now == "" || k < now) {
			now = k
		}
	}
	return counts, now
}
