package configs

import (
	"fmt"
	"strings"
)

// unknown says that a key is none, and which of the known ones was meant, if one is near:
// it has the same last part, so retention means store.retention, or it differs in one
// place. Case, - and _ make no difference.
func unknown(what, key string, known []string) string {
	plain := func(k string) string { return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(k)) }
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
