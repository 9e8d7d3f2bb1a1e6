package configs

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
	"time"
)

var bizName = regexp.MustCompile(`^[a-z0-9_.-]{1,64}$`)

// maxLimit is the greatest rate_limit, max_running and catch_up.
const maxLimit = 1_000_000

// checkBizTypes checks each and that no two are alike.
func checkBizTypes(ps *problems, types []BizType, clusters KafkaClusters) {
	ps.require(len(types) > 0, "biz_types", "is empty, so nothing could ever fire; write at least one")
	ids, names, topics := map[uint64]int{}, map[string]int{}, map[string]int{}
	for i, b := range types {
		at := fmt.Sprintf("biz_types[%d]", i)
		b.check(ps, at)
		b.Kafka.check(ps, at+".kafka.", b.Processor == ProcessorKafka, clusters)
		if b.ID > 0 {
			unique(ps, ids, at, "id", b.ID, i)
		}
		newName := b.Name != "" && unique(ps, names, at, "name", b.Name, i)
		if newName || b.Topic != b.Name { // a topic that equals the name is reported once
			unique(ps, topics, at, "topic", b.Topic, i)
		}
	}
}

// unique adds a problem, and answers false, when an earlier element has the same
// value.
func unique[T comparable](ps *problems, seen map[T]int, at, key string, value T, i int) bool {
	other, twice := seen[value]
	if twice {
		ps.add(at+"."+key, "%v is taken by biz_types[%d]; write another", value, other)
		return false
	}
	seen[value] = i
	return true
}

func (b BizType) check(ps *problems, at string) {
	at += "."
	ps.require(b.ID > 0, at+"id", "is missing or 0; write a number of 1 or more, and never give it to another type")
	ps.require(bizName.MatchString(b.Name) && b.Name != "." && b.Name != "..", at+"name",
		"%s is not a name; write 1 to 64 of a-z, 0-9, _ . -, and not . or .. alone", quote(b.Name))
	ps.oneOf(at+"mode", b.Mode, ModeScan, ModeRedis)
	ps.require(strings.TrimSpace(b.Processor) == b.Processor && b.Processor != "", at+"processor",
		"%s is not a name; write log, webhook, kafka, pull, or the name of a registered one", quote(b.Processor))
	b.Webhook.check(ps, at+"webhook.", b.Processor == ProcessorWebhook)
	ps.require(b.Pull.TTR >= 100*time.Millisecond && b.Pull.TTR <= 24*time.Hour, at+"pull.ttr", "%v is out of range; write 100ms to 24h",
		b.Pull.TTR)
	within(ps, at+"pull.max_in_flight", b.Pull.MaxInFlight, 1, maxLimit)
	ps.require(b.Processor != ProcessorPull || b.MaxRunning == 0, at+"max_running",
		"does not work with the processor pull; write pull.max_in_flight")
	within(ps, at+"workers", b.Workers, 1, 10000)
	ps.require(b.Timeout > 0, at+"timeout", "%v is too little; write 30s", b.Timeout)
	within(ps, at+"max_retries", b.MaxRetries, 0, 250)
	within(ps, at+"cuts", b.Cuts, 1, 250)
	ps.require(b.Backoff.Min > 0, at+"backoff.min", "%v is too little; write 1s", b.Backoff.Min)
	ps.require(b.Backoff.Max >= b.Backoff.Min, at+"backoff.max",
		"%v is less than backoff.min (%v); write as much or more", b.Backoff.Max, b.Backoff.Min)
	atLeast(ps, at+"expire_after", b.ExpireAfter, 0)
	ps.oneOf(at+"on_expire", b.OnExpire, OnExpireDead, OnExpireSkip, OnExpireRun)
	within(ps, at+"rate_limit", b.RateLimit, 0, maxLimit)
	within(ps, at+"max_running", b.MaxRunning, 0, maxLimit)
	within(ps, at+"catch_up", b.CatchUp, 0, maxLimit)
	ps.oneOf(at+"coalesce", b.Coalesce, CoalesceNone, CoalesceBizID)
	ps.require(keyPart.MatchString(b.Topic) || b.Topic == b.Name, at+"topic",
		"%s is not a topic; write 1 to 64 letters, digits or _ . : -", quote(b.Topic))
	// Slots are filled twice a second at most: a nearer horizon would pass them by.
	ps.require(b.Horizon == 0 || b.Horizon >= 10*time.Second, at+"horizon", "%v is too little; write 10s or more, or 0 for all", b.Horizon)
	ps.require(b.Visibility >= b.Timeout, at+"visibility",
		"%v is less than timeout (%v); write as much or more", b.Visibility, b.Timeout)
}

func (w Webhook) check(ps *problems, at string, used bool) {
	if used || w.URL != "" {
		ps.require(isWebURL(w.URL), at+"url",
			"%s is not an absolute URL; write http://host/path or https://host/path", quote(hideURL(w.URL)))
	}
	for name, secret := range map[string]string{"secret": w.Secret, "previous_secret": w.PreviousSecret} {
		if encoded, ok := strings.CutPrefix(secret, "whsec_"); ok {
			key, err := base64.StdEncoding.DecodeString(encoded)
			issued := err == nil && len(key) > 0
			ps.require(issued, at+name, "is not base64 after whsec_; write the secret as it was issued")
			ps.require(!issued || len(key) >= minKey || len(secret) < minKey, at+name,
				"has fewer than %d bytes after whsec_; write the secret as it was issued", minKey)
		}
	}
	atLeast(ps, at+"timeout", w.Timeout, 0)
	within(ps, at+"batch", w.Batch, 0, 256)
}
