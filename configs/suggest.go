package configs

import (
	"fmt"
	"strings"
)

var separators = strings.NewReplacer("_", "", "-", "")

// unknown is the message for an unknown key. It suggests a known key whose last part is the
// same (store.retention for retention) or whose letters differ in one place only. Case, -
// and _ are ignored.
func unknown(what, key string, known []string) string {
	plain := func(k string) string { return separators.Replace(strings.ToLower(k)) }
	last := func(k string) string { return k[strings.LastIndexByte(k, '.')+1:] }
	best, least := "", len(last(key))/3+2
	for _, k := range known {
		a, b := plain(key), plain(k)
		sameEnd := last(a) == last(b)
		for a != "" && b != "" && a[0] == b[0] {
			a, b = a[1:], b[1:]
		}
		for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
			a, b = a[:len(a)-1], b[:len(b)-1]
		}
		distance := max(len(a), len(b))
		if sameEnd {
			distance = min(distance, 1)
		}
		if distance < least {
			best, least = k, distance
		}
	}
	if best == "" || last(key) == "" {
		return "unknown " + what
	}
	return fmt.Sprintf("unknown %s; did you mean %s?", what, best)
}
