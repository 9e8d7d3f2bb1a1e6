package configs

import (
	"iter"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// The tree is described once, by Config and its tags; this file reads it by
// reflection, so that file, environment, Diff and String cannot disagree.

var durationType = reflect.TypeFor[time.Duration]()

// fields gives the keys of one section and where they live in it.
func fields(section reflect.Type) iter.Seq2[string, reflect.StructField] {
	return func(yield func(string, reflect.StructField) bool) {
		for i := range section.NumField() {
			f := section.Field(i)
			if !yield(f.Tag.Get("koanf"), f) {
				return
			}
		}
	}
}

// field finds one key of a section.
func field(section reflect.Type, key string) (reflect.StructField, bool) {
	for name, f := range fields(section) {
		if name == key {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// setting is one scalar or list of the tree, biz_types left out.
type setting struct {
	key   string // store.mysql.dsn
	typ   reflect.Type
	index []int  // the way from Config to it
	kind  secret // "": it is none
}

// env is the environment variable: TOC_STORE_MYSQL_DSN.
func (s setting) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.key, ".", "_"))
}

// of is the setting's value in c.
func (s setting) of(c Config) any { return reflect.ValueOf(c).FieldByIndex(s.index).Interface() }

// settings lists them all in the order of the tree.
func settings() []setting {
	var all []setting
	var walk func(section reflect.Type, prefix string, index []int)
	walk = func(section reflect.Type, prefix string, index []int) {
		for name, f := range fields(section) {
			here := append(index[:len(index):len(index)], f.Index...)
			switch {
			case f.Type.Kind() == reflect.Struct:
				walk(f.Type, prefix+name+".", here)
			case isSections(f.Type): // biz_types
			default:
				all = append(all, setting{key: prefix + name, typ: f.Type, index: here, kind: secretOf(f)})
			}
		}
	}
	walk(reflect.TypeFor[Config](), "", nil)
	return all
}

// isSections tells a list of sections (biz_types) from a list of words.
func isSections(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct
}

// parseScalar reads one value as the type asks; false when the text is none.
func parseScalar(text string, t reflect.Type) (any, bool) {
	var v any
	var err error
	switch {
	case t == durationType:
		v, err = time.ParseDuration(strings.TrimSpace(text))
	case t.Kind() == reflect.Int:
		v, err = strconv.Atoi(strings.TrimSpace(text))
	case t.Kind() == reflect.Uint64:
		v, err = strconv.ParseUint(strings.TrimSpace(text), 10, 64)
	default:
		v = text
	}
	return v, err == nil
}

// kindOf says what a key of this type holds, and an example of it.
func kindOf(t reflect.Type) (kind, example string) {
	switch {
	case t == durationType:
		return "a duration", "10s, 1m30s, 720h or 0"
	case t.Kind() == reflect.Int:
		return "a whole number", "10"
	case t.Kind() == reflect.Uint64:
		return "a whole number of 0 or more", "1"
	case isSections(t):
		return "a list of sections", "one \"- \" element each"
	case t.Kind() == reflect.Slice:
		return "a list", "[a, b]"
	case t.Kind() == reflect.Struct:
		return "a section", "keys under it: " + strings.Join(keysOf(t), ", ")
	default:
		return "a text", "\"…\""
	}
}

// keysOf lists the keys of a section.
func keysOf(section reflect.Type) []string {
	var keys []string
	for name := range fields(section) {
		keys = append(keys, name)
	}
	return keys
}
