// Package processors holds the processors that ship with the timeout center:
//
//	log      one line in the log for each task that fires
//	webhook  an HTTP POST of the task as JSON
//
// A task that is due comes in, an answer goes out: nil, an error, retry-after or
// discard. The room refuses to know where tasks come from, what becomes of the
// answers, and how the configuration is written.
package processors

import (
	"fmt"
	"log/slog"

	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

// The names under which a configuration finds what ships.
const (
	NameLog     = "log"
	NameWebhook = "webhook"
)

// Register adds all that ships to r. The settings of webhook are a
// WebhookConfig; log has none.
func Register(r *processor.Registry, logger *slog.Logger) error {
	newLog := func(b task.BizType, _ any) (processor.Processor, error) {
		return NewLog(b, logger), nil
	}
	newWebhook := func(b task.BizType, settings any) (processor.Processor, error) {
		cfg, ok := settings.(WebhookConfig)
		if !ok {
			return nil, fmt.Errorf("the settings are a %T; a WebhookConfig is needed", settings)
		}
		return NewWebhook(b, cfg)
	}
	if err := r.Register(NameLog, newLog); err != nil {
		return err
	}
	return r.Register(NameWebhook, newWebhook)
}
