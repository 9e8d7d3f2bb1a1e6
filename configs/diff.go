package configs

import (
	"fmt"
	"reflect"
)

// Diff lists the settings outside biz_types that differ, one line each, with
// the key in front: they need a restart. Secrets are not shown.
func Diff(before, after Config) []string {
	var lines []string
	shownBefore, shownAfter := before.Redacted(), after.Redacted()
	for _, s := range settings() {
		if reflect.DeepEqual(s.of(before), s.of(after)) {
			continue
		}
		was, is := fmt.Sprint(s.of(shownBefore)), fmt.Sprint(s.of(shownAfter))
		if was == is { // the difference is in a secret
			lines = append(lines, s.key+": changed")
			continue
		}
		lines = append(lines, fmt.Sprintf("%s: %s -> %s", s.key, was, is))
	}
	return lines
}
