package processor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/timeoutcenter/toc/task"
)

// Registry holds the processors that a configuration may name.
type Registry struct{ constructors map[string]Constructor }

// NewRegistry starts empty.
func NewRegistry() *Registry { return &Registry{constructors: map[string]Constructor{}} }

// Register adds a processor under a name. A name that is taken is an error.
func (r *Registry) Register(name string, c Constructor) error {
	if name == "" || c == nil {
		return fmt.Errorf("register processor %q: a name and a constructor are needed", name)
	}
	if _, taken := r.constructors[name]; taken {
		return fmt.Errorf("register processor %q: the name is taken", name)
	}
	r.constructors[name] = c
	return nil
}

// Has reports whether a name is registered.
func (r *Registry) Has(name string) bool { _, ok := r.constructors[name]; return ok }

// Build makes the processor of a business type.
func (r *Registry) Build(b task.BizType, settings any) (Processor, error) {
	c, ok := r.constructors[b.Processor]
	if !ok {
		names := slices.Sorted(maps.Keys(r.constructors))
		return nil, fmt.Errorf("biz_type %s: processor %q is not registered; there are: %s",
			b.Name, b.Processor, strings.Join(names, ", "))
	}
	p, err := c(b, settings)
	if err != nil {
		return nil, fmt.Errorf("biz_type %s: processor %s: %w", b.Name, b.Processor, err)
	}
	return p, nil
}
