package configs

import (
	"fmt"
	"reflect"
	"slices"
)

// Diff lists the settings outside biz_types that differ, one line each, with
// the key in front: they need a restart. Secrets are not shown.
func Diff(before, after Config) []string {
	lines := diff("", before, after)
	if !reflect.DeepEqual(before.Intake, after.Intake) {
		lines = append(lines, "intake: changed")
	}
	if !reflect.DeepEqual(before.Kafka, after.Kafka) {
		lines = append(lines, "kafka.clusters: changed")
	}
	return lines
}

// DiffBizTypes lists what differs in the biz_types, one line each: a type that is new or
// gone, and each changed key with the type's name in front. Secrets are not shown.
func DiffBizTypes(before, after []BizType) []string {
	var lines []string
	of := func(list []BizType, id uint64) int {
		return slices.IndexFunc(list, func(b BizType) bool { return b.ID == id })
	}
	for _, b := range before {
		if of(after, b.ID) < 0 {
			lines = append(lines, fmt.Sprintf("%s: gone; its pending tasks wait", b.Name))
		}
	}
	for _, b := range after {
		if at := of(before, b.ID); at < 0 {
			lines = append(lines, b.Name+": new")
		} else {
			lines = append(lines, diff(b.Name, before[at], b)...)
		}
	}
	return lines
}

// diff compares two sections key by key; at is the prefix of the keys.
func diff[T interface{ Redacted() T }](at string, before, after T) (lines []string) {
	list := func(section T) []setting { return settings(reflect.ValueOf(section), at) }
	was, is, shownWas, shownIs := list(before), list(after), list(before.Redacted()), list(after.Redacted())
	for i, s := range was {
		if s.isSection() || reflect.DeepEqual(s.value.Interface(), is[i].value.Interface()) {
			continue
		}
		from, to := fmt.Sprint(shownWas[i].value), fmt.Sprint(shownIs[i].value)
		if from == to { // the difference is in a secret
			lines = append(lines, s.key+": changed")
		} else {
			lines = append(lines, fmt.Sprintf("%s: %s -> %s", s.key, from, to))
		}
	}
	return lines
}
