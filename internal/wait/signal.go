package wait

// Signal wakes one waiter, who reads from it. It remembers one Set for the next waiter, and two are as good as one. A waiter that
// leaves work behind must set it again.
type Signal chan struct{}

// NewSignal makes a Signal that is not set.
func NewSignal() Signal { return make(Signal, 1) }

// Set wakes a waiter. It never blocks.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default:
	}
}
