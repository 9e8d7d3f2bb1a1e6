package sqladmin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// A value is what stands in one cell of a merged row:
//
//	nil, int64, uint64, float64, string
//	json.Number   a DECIMAL, digit by digit
//	[]byte        a SQLite blob; it becomes a string in the result
//
// Times are strings, so that they sort and print alike in both databases.

const (
	timeLayout = "2006-01-02 15:04:05.000"
	dateLayout = "2006-01-02"
)

// cellType is what the database says of a column.
type cellType struct {
	dialect  Dialect
	name     string // the driver's DatabaseTypeName
	unsigned bool   // an id that SQLite stores as a signed integer
}

// value converts what the driver scanned.
func (c cellType) value(v any) (any, error) {
	switch v := v.(type) {
	case nil, uint64, float64, string:
		return v, nil
	case int64:
		if c.unsigned {
			return uint64(v), nil
		}
		return v, nil
	case float32:
		f, err := strconv.ParseFloat(strconv.FormatFloat(float64(v), 'g', -1, 32), 64)
		return f, err
	case bool:
		if v {
			return int64(1), nil
		}
		return int64(0), nil
	case []byte:
		switch {
		case c.dialect == SQLite:
			return v, nil
		case c.name == "DECIMAL":
			return json.Number(v), nil
		}
		return string(v), nil
	case time.Time:
		// The driver's own zone: the digits are then those that are stored.
		if c.name == "DATE" {
			return v.Format(dateLayout), nil
		}
		return v.Format(timeLayout), nil
	}
	return nil, fmt.Errorf("the driver answered with a %T", v)
}

// comparable tells whether compare orders the column's values as the database does.
func (c cellType) comparable() bool {
	switch c.name {
	case "TIME", "JSON", "GEOMETRY", "VECTOR":
		return c.dialect != MySQL
	}
	return true
}

// compare orders values: NULL, numbers, strings byte by byte, blobs.
func compare(a, b any) int {
	if byRank := cmp.Compare(rank(a), rank(b)); byRank != 0 {
		return byRank
	}
	switch a := a.(type) {
	case nil:
		return 0
	case string:
		return strings.Compare(a, b.(string))
	case []byte:
		return bytes.Compare(a, b.([]byte))
	case int64:
		if b, ok := b.(int64); ok {
			return cmp.Compare(a, b)
		}
	case uint64:
		if b, ok := b.(uint64); ok {
			return cmp.Compare(a, b)
		}
	case float64:
		if b, ok := b.(float64); ok {
			return cmp.Compare(a, b)
		}
	}
	return compareNumbers(a, b)
}

func rank(v any) int {
	switch v.(type) {
	case nil:
		return 0
	case string:
		return 2
	case []byte:
		return 3
	}
	return 1
}

// compareNumbers is exact for numbers of different types.
func compareNumbers(a, b any) int {
	x, y := exact(a), exact(b)
	if x == nil || y == nil { // infinity is beyond all
		return cmp.Compare(float(a), float(b))
	}
	return x.Cmp(y)
}

// exact is a number as a fraction; nil for infinity and for what is no number.
func exact(v any) *big.Rat {
	r := new(big.Rat)
	switch v := v.(type) {
	case int64:
		return r.SetInt64(v)
	case uint64:
		return r.SetUint64(v)
	case float64:
		return r.SetFloat64(v)
	case json.Number:
		if r, ok := r.SetString(string(v)); ok {
			return r
		}
	}
	return nil
}

func float(v any) float64 {
	switch v := v.(type) {
	case float64:
		return v
	case nil, string, []byte:
		return math.NaN()
	}
	f, _ := exact(v).Float64()
	return f
}

// whole is n as the smallest type that holds it.
func whole(n *big.Int) any {
	switch {
	case n.IsInt64():
		return n.Int64()
	case n.IsUint64():
		return n.Uint64()
	}
	return json.Number(n.String())
}

// key is the same for two rows exactly when the database holds them for the same
// in GROUP BY and DISTINCT.
func key(row []any) string {
	var b []byte
	for _, v := range row {
		var part string
		switch v := v.(type) {
		case nil:
		case string:
			part = v
		case []byte:
			part = string(v)
		default:
			if r := exact(v); r != nil {
				part = r.RatString() // 1, 1.0 and 1.00 are one number
			} else {
				part = strconv.FormatFloat(float(v), 'g', -1, 64)
			}
		}
		b = strconv.AppendInt(b, int64(rank(v)), 10)
		b = strconv.AppendInt(b, int64(len(part)), 10)
		b = append(b, ':')
		b = append(b, part...)
	}
	return string(b)
}
