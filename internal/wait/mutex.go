package wait

import "sync"

// Mutex is a mutex that may be held while its holder waits for a server. Who waits for it waits as for a channel: in a synctest
// bubble time goes on meanwhile, where it would stand still for a sync.Mutex, and the holder would wait for ever.
type Mutex struct {
	mu    sync.Mutex
	freed sync.Cond
	held  bool
}

// Lock locks the mutex.
func (m *Mutex) Lock() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.freed.L = &m.mu
	for m.held {
		m.freed.Wait()
	}
	m.held = true
}

// Unlock unlocks the mutex.
func (m *Mutex) Unlock() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.held {
		panic("wait: unlock of a Mutex that is not locked")
	}
	m.held = false
	m.freed.Signal()
}
