package configs

import (
	"fmt"
	"reflect"
	"slices"
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
		lines = append(lines, diffLine(s.key, s.of(shownBefore), s.of(shownAfter)))
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
		at := of(before, b.ID)
		if at < 0 {
			lines = append(lines, b.Name+": new")
			continue
		}
		lines = append(lines, diffSection(b.Name, reflect.ValueOf(before[at]), reflect.ValueOf(b),
			reflect.ValueOf(before[at].Redacted()), reflect.ValueOf(b.Redacted()))...)
	}
	return lines
}

// diffSection compares a section key by key; what is shown is redacted.
func diffSection(path string, before, after, shownBefore, shownAfter reflect.Value) (lines []string) {
	for name, f := range fields(before.Type()) {
		key, was, is := path+"."+name, before.FieldByIndex(f.Index), after.FieldByIndex(f.Index)
		switch {
		case was.Kind() == reflect.Struct:
			lines = append(lines, diffSection(key, was, is, shownBefore.FieldByIndex(f.Index), shownAfter.FieldByIndex(f.Index))...)
		case !reflect.DeepEqual(was.Interface(), is.Interface()):
			lines = append(lines, diffLine(key, shownBefore.FieldByIndex(f.Index).Interface(), shownAfter.FieldByIndex(f.Index).Interface()))
		}
	}
	return lines
}

func diffLine(key string, shownBefore, shownAfter any) string {
	was, is := fmt.Sprint(shownBefore), fmt.Sprint(shownAfter)
	if was == is { // the difference is in a secret
		return key + ": changed"
	}
	return fmt.Sprintf("%s: %s -> %s", key, was, is)
}
