package configs

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// setting is one key of the Config: a scalar, a list of words, a section or a list of
// sections.
type setting struct {
	key    string // store.mysql.dsn
	value  reflect.Value
	secret secret
	file   reflect.Value // of a secret that is read again for each use: the path of its file
}

// settings lists all keys below a section, in the order of their fields. It does not look
// into a list of sections (biz_types). The file, the environment, Diff and the checks of
// secrets all use it, so they cannot disagree about the keys.
func settings(section reflect.Value, at string) []setting {
	var all []setting
	for i := range section.NumField() {
		f := section.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name == "-" {
			continue
		}
		s := setting{join(at, name), section.Field(i), secret(f.Tag.Get("secret")), reflect.Value{}}
		if s.secret != noSecret {
			s.file = section.FieldByName(f.Name + "File")
		}
		all = append(all, s)
		if s.value.Kind() == reflect.Struct {
			all = append(all, settings(s.value, s.key)...)
		}
	}
	return all
}

func join(section, name string) string {
	if section == "" {
		return name
	}
	return section + "." + name
}

// isSection reports whether the key holds other keys and no value: a section or a list of
// sections.
func (s setting) isSection() bool {
	t := s.value.Type()
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct
}

// env is the name of the environment variable: TOC_STORE_MYSQL_DSN.
func (s setting) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.key, ".", "_"))
}

// setText parses the text and sets the value; a list is split at commas. An error says
// what kind of value the text should be.
func setText(v reflect.Value, text string) error {
	var parsed any = text
	var err error
	switch trimmed := strings.TrimSpace(text); v.Interface().(type) {
	case time.Duration:
		parsed, err = time.ParseDuration(trimmed)
	case int:
		parsed, err = strconv.Atoi(trimmed)
	case uint64:
		parsed, err = strconv.ParseUint(trimmed, 10, 64)
	case float64:
		parsed, err = strconv.ParseFloat(trimmed, 64)
	case bool:
		if parsed = trimmed == "true"; trimmed != "true" && trimmed != "false" {
			err = strconv.ErrSyntax
		}
	case []string:
		words := []string{}
		if trimmed != "" {
			words = strings.Split(text, ",")
		}
		for i := range words {
			words[i] = strings.TrimSpace(words[i])
		}
		parsed = words
	}
	if err != nil {
		kind, example := kindOf(v)
		return fmt.Errorf("%s is not %s; write %s", quote(text), kind, example)
	}
	v.Set(reflect.ValueOf(parsed))
	return nil
}

// kindOf names the kind of a value for error messages, with an example.
func kindOf(v reflect.Value) (kind, example string) {
	switch v.Interface().(type) {
	case time.Duration:
		return "a duration", "10s, 1m30s, 720h or 0"
	case int:
		return "a whole number", "10"
	case uint64:
		return "a whole number of 0 or more", "1"
	case float64:
		return "a number", "0.01"
	case bool:
		return "true or false", "true"
	case string:
		return "a text", `"…"`
	case []string:
		return "a list", "[a, b]"
	case []BizType, []Intake:
		return "a list of sections", `one "- " element each`
	case TLS:
		return "a section", "its keys, as in {ca: system} or {ca: FILE}: ca, cert, key, server_name"
	case KafkaClusters:
		return "a section", "one section for each cluster, by its name"
	default:
		direct := slices.DeleteFunc(keys(v, ""), func(key string) bool { return strings.Contains(key, ".") })
		return "a section", "its keys: " + strings.Join(direct, ", ")
	}
}

// keys lists the keys that settings finds.
func keys(section reflect.Value, at string) []string {
	var all []string
	for _, s := range settings(section, at) {
		all = append(all, s.key)
	}
	return all
}
