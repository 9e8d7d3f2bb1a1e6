package app

import (
	"fmt"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/httpapi"
	intakekafka "github.com/timeoutcenter/toc/intake/kafka"
)

// buildReaders makes the readers of topics.
func (a *App) buildReaders() error {
	for i, n := range a.cfg.Intake {
		c, err := kafkaCluster(a.cfg, n.Cluster)
		if err != nil {
			return err
		}
		cfg := intakekafka.Config{
			Name: n.Name, Cluster: c, Topic: n.Topic, Group: n.Group, Rate: n.Rate, FailureTopic: n.FailureTopic,
			Service: a.service, Body: httpapi.ReadSubmit, Logger: a.component("intake"),
			Refused: func(name string) { a.metrics.IntakeRefused(name, 1) },
		}
		if n.Lane == configs.LaneSlow {
			cfg.SlowAfter = a.cfg.Store.SlowAfter
		}
		r, err := intakekafka.New(cfg)
		if err != nil {
			return fmt.Errorf("intake[%d]: %w", i, err)
		}
		a.metrics.IntakeRefused(n.Name, 0)
		a.readers = append(a.readers, r)
	}
	return nil
}
