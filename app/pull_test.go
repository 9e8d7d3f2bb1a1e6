package app_test

import (
	"time"

	"github.com/timeoutcenter/toc/configs"
)

// pulled makes the business type of a configuration one whose tasks are leased for so long.
func pulled(cfg configs.Config, ttr time.Duration) configs.Config {
	b := &cfg.BizTypes[0]
	b.Processor = configs.ProcessorPull
	b.Pull = configs.Pull{TTR: ttr, MaxInFlight: 1000}
	b.Backoff.Min, b.Backoff.Max = 100*time.Millisecond, 200*time.Millisecond
	return cfg
}
