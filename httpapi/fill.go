package httpapi

import (
	"reflect"
	"strings"
	"sync"
)

// fault says what is wrong with one field of a body. An empty field means the
// body itself.
type fault struct{ field, message string }

// maxFaults bounds what is told of one request: refusing must cost less than asking.
const maxFaults = 20

// fill reads valid JSON into the struct that o points to, strictly: an unknown name, a name
// that comes twice and a value of the wrong type are faults. They are told at once, up to maxFaults.
func fill(o any, value []byte) []fault {
	if value[0] != '{' {
		return []fault{{"", "must be an object, not " + kindOf(value)}}
	}
	to := reflect.ValueOf(o).Elem()
	given := names{places: placesOf(to.Type())}
	var faults []fault
	for name, value := range members(value) {
		if len(faults) == maxFaults {
			return append(faults[:maxFaults-1], fault{"", "has more faults than these"})
		}
		place, known := given.places[string(name)]
		switch {
		case !known:
			faults = append(faults, fault{clip(string(name)), "is no field of this body"})
		case given.bits>>place&1 == 1:
			faults = append(faults, fault{string(name), "is given twice"})
		default:
			given.bits |= 1 << place
			if err := read(to.Field(place).Addr().Interface(), value); err != nil {
				faults = append(faults, fault{string(name), err.Error()})
			}
		}
	}
	return append(faults, missing(o, given)...)
}

// names are those of the fields that a body has given.
type names struct {
	places map[string]int // of all fields
	bits   uint64         // by place
}

func (n names) has(name string) bool {
	place, known := n.places[name]
	return known && n.bits>>place&1 == 1
}

// places holds the answers of placesOf.
var places sync.Map

// placesOf gives the places of a struct's fields by their names in JSON.
func placesOf(body reflect.Type) map[string]int {
	if known, ok := places.Load(body); ok {
		return known.(map[string]int)
	}
	byName := make(map[string]int)
	for i := range body.NumField() {
		if name, _, _ := strings.Cut(body.Field(i).Tag.Get("json"), ","); name != "" {
			byName[name] = i
		}
	}
	places.Store(body, byName)
	return byName
}
