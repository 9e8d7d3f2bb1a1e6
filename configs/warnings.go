package configs

import (
	"fmt"
	"net"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Warnings lists what is allowed and seldom meant, one line each, with the key
// in front. The Config must be valid.
func (c Config) Warnings() []string {
	var lines []string
	warn := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if len(c.HTTP.Tokens) == 0 && !isLoopback(c.HTTP.Listen) {
		warn("http.listen: %s is reachable from other machines and http.tokens is empty, so whoever reaches it may submit and cancel tasks", c.HTTP.Listen)
	}
	lines = append(lines, c.Store.tlsWarnings()...)
	if schedule, err := ParseSchedule(c.Scan.Schedule); err == nil {
		if pause := LongestPause(schedule); c.Scan.Lookahead < pause {
			warn("scan.lookahead: %v is shorter than the %v between two ticks of scan.schedule, so tasks may be late by %v",
				c.Scan.Lookahead, pause, (pause - c.Scan.Lookahead).Round(time.Millisecond))
		}
	}
	if c.Tracing.Sample > 0 && c.Tracing.OTLP == "" {
		warn("tracing.sample: %v has no effect, because tracing.otlp is empty", c.Tracing.Sample)
	}
	for _, b := range c.BizTypes {
		switch pull := DefaultBizType().Pull; {
		case b.Processor != ProcessorPull && b.Pull != pull:
			warn("biz_types: %s has pull settings without effect, because its processor is %s; write processor: pull", b.Name, b.Processor)
		case b.Processor == ProcessorPull && b.Webhook.URL != "":
			warn("biz_types: %s has a webhook.url without effect, because its processor is pull", b.Name)
		}
	}
	if c.Cluster.Provider == ProviderConsul {
		for _, b := range c.BizTypes {
			if b.Timeout > c.Shutdown.Drain {
				warn("biz_types: %s may run for %v (timeout), and a partition that is handed over waits %v (shutdown.drain): a longer run is run again by the new owner",
					b.Name, b.Timeout, c.Shutdown.Drain)
			}
		}
	}
	return lines
}

// tlsWarnings finds DSNs with a TLS that does not keep others out.
func (s Store) tlsWarnings() (lines []string) {
	if s.Driver != DriverMySQL {
		return nil
	}
	keys, dsns := []string{"store.mysql.dsn"}, []string{s.MySQL.DSN}
	if len(s.MySQL.DSNs) > 0 {
		keys, dsns = nil, s.MySQL.DSNs
		for i := range dsns {
			keys = append(keys, fmt.Sprintf("store.mysql.dsns[%d]", i))
		}
	}
	for i, dsn := range dsns {
		switch c, err := mysql.ParseDSN(escapeVerb(dsn)); {
		case err != nil:
		case c.TLSConfig == "skip-verify" || c.TLSConfig == "preferred":
			lines = append(lines, fmt.Sprintf("%s: tls=%s takes any certificate, so whoever stands between can read and change everything; write store.mysql.tls: {ca: FILE} instead", keys[i], c.TLSConfig))
		case c.AllowFallbackToPlaintext:
			lines = append(lines, fmt.Sprintf("%s: allowFallbackToPlaintext=true takes a server without TLS, too; write store.mysql.tls: {ca: FILE} instead", keys[i]))
		}
	}
	return lines
}

// isLoopback reports whether only this machine can connect to a listen address.
func isLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
