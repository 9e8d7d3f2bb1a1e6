package rest

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// fault says what is wrong with one field of a body. An empty field means the
// body itself.
type fault struct{ field, message string }

// Error makes it an error that read gives, of a part of what is read.
func (f fault) Error() string { return f.field + ": " + f.message }

// maxFaults bounds the faults that reading one request collects: a refusal must cost less than the request.
const maxFaults = 20

// fill reads valid JSON into the struct that o points to, strictly: an unknown name, a name
// that comes twice and a value of the wrong type are faults. It returns up to maxFaults of them, and then those of missing.
func fill(o any, value []byte) []fault { return fillNames(o, value, false) }

// fillKnown is fill for callers that may send more: an unknown name is left out, and upper case is as good as lower.
func fillKnown(o any, value []byte) []fault { return fillNames(o, value, true) }

func fillNames(o any, value []byte, lenient bool) []fault {
	if value[0] != '{' {
		return []fault{{"", "must be an object, not " + kindOf(value)}}
	}
	to := reflect.ValueOf(o).Elem()
	given := names{fields: jsonFields(to.Type())}
	var faults []fault
	unknown := make(map[string]bool)
	for name, value := range members(value) {
		if lenient {
			name = given.spelling(name)
		}
		if len(faults) == maxFaults {
			return append(faults[:maxFaults-1], fault{"", "has more faults than these"})
		}
		at := given.find(string(name))
		switch {
		case at < 0 && lenient && !unknown[string(name)]:
			unknown[string(name)] = true
			if err := checkUnicode(value); err != nil {
				faults = append(faults, fault{clip(string(name)), err.Error()})
			}
		case at < 0 && lenient:
			faults = append(faults, fault{clip(string(name)), "is given twice"})
		case at < 0:
			faults = append(faults, fault{clip(string(name)), "is no field of this body; there are: " + given.list()})
		case given.bits>>at&1 == 1:
			faults = append(faults, fault{string(name), "is given twice"})
		default:
			given.bits |= 1 << at
			if err := read(to.Field(given.fields[at].place).Addr().Interface(), value); err != nil {
				part, is := errors.AsType[fault](err)
				if !is {
					part.message = err.Error()
				}
				faults = append(faults, fault{string(name) + part.field, part.message})
			}
		}
	}
	return append(faults, missing(o, given)...)
}

// names are the names of a body's fields, and which of them were given.
type names struct {
	fields []field
	bits   uint64 // 1: the field was given; in the order of fields
}

// field is a field of a struct: its name in JSON, and its place in the struct.
type field struct {
	name  string
	place int
}

func (n names) has(name string) bool {
	at := n.find(name)
	return at >= 0 && n.bits>>at&1 == 1
}

// find gives the place in fields. There are so few that a map would take longer.
func (n names) find(name string) int {
	return slices.IndexFunc(n.fields, func(f field) bool { return f.name == name })
}

// list names the fields for a caller who has given another one.
func (n names) list() string {
	known := make([]string, len(n.fields))
	for i, f := range n.fields {
		known[i] = f.name
	}
	return strings.Join(known, ", ")
}

// spelling gives a name as the body's field has it, if only upper and lower case differ.
func (n names) spelling(name []byte) []byte {
	for _, f := range n.fields {
		if strings.EqualFold(f.name, string(name)) {
			return []byte(f.name)
		}
	}
	return name
}

// knownFields keeps the answers of jsonFields.
var knownFields sync.Map

func jsonFields(body reflect.Type) (fields []field) {
	if known, ok := knownFields.Load(body); ok {
		return known.([]field)
	}
	for i := range body.NumField() {
		if name, _, _ := strings.Cut(body.Field(i).Tag.Get("json"), ","); name != "" {
			fields = append(fields, field{name, i})
		}
	}
	knownFields.Store(body, fields)
	return fields
}
