package configs

import (
	"fmt"
	"strings"
)

// unknown says that a key is none, and which one was meant if one is near: by the letters
// to add, drop or change (Levenshtein), or by its last part alone, so retention means
// store.retention.
func unknown(what, key string, known []string) string {
	const longest = 100 // no key is nearly as long
	last := func(k string) string { return k[strings.LastIndexByte(k, '.')+1:] }
	best, least := "", len(last(key))/3+2
	if last(key) == "" || len(key) > longest {
		known = nil
	}
	for _, k := range known {
		row := make([]int, len(k)+1) // row[j]: from what was read of key to k[:j]
		for j := range row {
			row[j] = j
		}
		for i := range len(key) {
			diagonal := row[0]
			row[0]++
			for j := range len(k) {
				change := diagonal
				if key[i] != k[j] {
					change++
				}
				diagonal = row[j+1]
				row[j+1] = min(change, row[j]+1, row[j+1]+1)
			}
		}
		distance := row[len(k)]
		if last(key) == last(k) {
			distance = min(distance, 1)
		}
		if distance < least {
			best, least = k, distance
		}
	}
	if best == "" {
		return "unknown " + what
	}
	return fmt.Sprintf("unknown %s; did you mean %s?", what, best)
}
