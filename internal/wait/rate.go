package wait

import "time"

// Rate measures how many items a second come.
type Rate struct {
	since time.Time
	items int
	// PerSecond is the rate of the last window.
	PerSecond float64
}

// Add counts items.
func (r *Rate) Add(items int) { r.items += items }

// Update ends the window if it has lasted for so long, or has so many items already after rateShort; many: 0 is never. It reports whether
// it did.
func (r *Rate) Update(now time.Time, window time.Duration, many int) (isNew bool) {
	passed := now.Sub(r.since)
	if passed >= 0 && passed < window && (many == 0 || r.items < many || passed < rateShort) {
		return false
	}
	r.PerSecond = 0
	if passed > 0 {
		r.PerSecond = float64(r.items) / passed.Seconds()
	}
	r.since, r.items = now, 0
	return true
}

const rateShort = 50 * time.Millisecond
