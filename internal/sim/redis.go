package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"github.com/timeoutcenter/toc/internal/testrig/traffic"
)

// ahead is the time ahead for which Redis holds tasks at most: by default the horizon, which is longer than a tick, four cycles
// and 6 s. A second more is for what is on its way.
const ahead = 31 * time.Second

// watchRedis looks into all slots each second until ctx ends.
func (w *world) watchRedis(ctx context.Context) {
	for traffic.Wait(ctx, time.Second) {
		for key, prepare := range w.slots() {
			claimed, last := w.members(prepare), 0.0
			for id, score := range w.members(key) {
				last = max(last, score)
				if _, was := claimed[id]; !was {
					continue
				}
				if _, is := w.members(prepare)[id]; is { // it was not given back in between
					w.blame("tasks were in both queues of a slot", fmt.Sprintf("%s of %s at %s", id, key, audit.Clock(time.Now().UnixNano())))
				}
			}
			if due := time.UnixMilli(int64(last / 1000)); time.Until(due) > ahead && !w.clockWasAhead() {
				w.blame("tasks came into Redis too soon", fmt.Sprintf("%s has one that is due in %s", key, time.Until(due)))
			}
		}
	}
}

// slots lists the slots that have a key in Redis: the names of the store queue and of the prepare queue.
func (w *world) slots() map[string]string {
	list := make(map[string]string)
	for _, key := range w.Redis().Keys() {
		if name, isPrepare := strings.CutPrefix(key, "prepare_{"); isPrepare {
			list[strings.TrimSuffix(name, "}")] = key
		} else if w.Redis().Type(key) == "zset" && !strings.HasPrefix(key, "dead_{") {
			list[key] = "prepare_{" + key + "}"
		}
	}
	return list
}

// members has the scores of a queue by job_id.
func (w *world) members(key string) map[string]float64 {
	ids, _ := w.Redis().ZMembers(key) // an error: there is none. SortedSet would give the set itself, which changes
	scores := make(map[string]float64, len(ids))
	for _, id := range ids {
		if score, err := w.Redis().ZScore(key, id); err == nil {
			scores[id] = score
		}
	}
	return scores
}

func (w *world) clockWasAhead() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.faults, func(f *audit.Fault) bool { return f.Skew > 0 })
}

// lookIntoRedis looks, a minute after all is done, for tasks that still wait in Redis. Claims of tasks that have ended may be left
// there: the next claim in their slot finds out.
func (w *world) lookIntoRedis() {
	time.Sleep(time.Minute)
	inUse := w.Config("any").BizTypes
	for key := range w.slots() {
		topic := key[:strings.LastIndex(key, "_")]
		isServed := slices.ContainsFunc(inUse, func(b configs.BizType) bool { return b.Name == topic && b.Mode == configs.ModeRedis })
		if stored := w.members(key); isServed && len(stored) > 0 {
			w.blame("tasks wait in Redis that are not pending", fmt.Sprintf("%d in %s", len(stored), key))
		}
	}
}

func (w *world) blame(rule, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blamed = append(w.blamed, audit.Breach{Rule: rule, What: what})
}
