package app

import (
	"errors"
	"sync"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/tlsclient"
)

// tlsClients are the clients of all sections with TLS, to report files that cannot be used.
type tlsClients struct {
	mu   sync.Mutex
	list map[tlsKey]*tlsclient.Client
}

type tlsKey struct {
	section string
	files   tlsclient.Files
}

// tlsClient returns the client of a section, one for all that connect by it. Its first files must be usable.
func (a *App) tlsClient(section string, t configs.TLS) (*tlsclient.Client, error) {
	a.tls.mu.Lock()
	defer a.tls.mu.Unlock()
	key := tlsKey{section, t.Files()}
	if c := a.tls.list[key]; c != nil {
		return c, nil
	}
	c := tlsclient.New(section, key.files, a.component("tls"))
	if err := c.Check(); err != nil {
		return nil, err
	}
	a.tls.list[key] = c
	return c, nil
}

// check returns the problems of the files as they are. The last files that could be used stay in force.
func (t *tlsClients) check() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	for _, c := range t.list {
		errs = append(errs, c.Check())
	}
	return errors.Join(errs...)
}
