package configs

import (
	"reflect"
	"strings"
)

// nearest finds the candidate that was most likely meant by a word; "" when
// none is near. A candidate whose last part is the word's last part is near
// wherever it stands: retention means store.retention.
func nearest(word string, candidates []string) string {
	const longest = 100 // no key is nearly as long
	last := len(lastPart(word))
	if last == 0 || len(word) > longest {
		return ""
	}
	best, least := "", last/3+2
	for _, c := range candidates {
		d := distance(word, c)
		if lastPart(word) == lastPart(c) {
			d = min(d, 1)
		}
		if d < least {
			best, least = c, d
		}
	}
	return best
}

func lastPart(key string) string { return key[strings.LastIndexByte(key, '.')+1:] }

// fileKeys lists every key, sections too, that may stand in a file: those of the
// whole tree, or below the element of biz_types that key is in.
func fileKeys(key string) []string {
	var keys []string
	var walk func(section reflect.Type, prefix string)
	walk = func(section reflect.Type, prefix string) {
		for name, f := range fields(section) {
			keys = append(keys, prefix+name)
			if f.Type.Kind() == reflect.Struct {
				walk(f.Type, prefix+name+".")
			}
		}
	}
	if end := strings.IndexByte(key, ']'); end >= 0 {
		walk(reflect.TypeFor[BizType](), key[:end+1]+".")
	} else {
		walk(reflect.TypeFor[Config](), "")
	}
	return keys
}

// distance counts the letters to add, drop or change to turn a into b
// (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
