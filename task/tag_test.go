package task_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/task"
)

// Whatever field of a task changes, its tag changes, and no two changes make the same one.
func TestATagIsOfEveryField(t *testing.T) {
	base := task.Task{
		JobID: 1, BizID: 2, BizKey: "k", BizType: 3, Status: task.Pending, ActionTime: time.UnixMilli(5000), Attribute: "a", Attempts: 4,
		LastError: "e", DedupKey: "d", Created: time.UnixMilli(1000), Modified: time.UnixMilli(2000), DueTime: time.UnixMilli(4000), Timeout: time.Second,
	}
	seen := map[string]string{base.Tag(): "nothing"}
	for i := range reflect.TypeFor[task.Task]().NumField() {
		changed := base
		f := reflect.ValueOf(&changed).Elem().Field(i)
		switch v := f.Interface().(type) {
		case time.Time:
			f.Set(reflect.ValueOf(v.Add(time.Millisecond)))
		case time.Duration:
			f.SetInt(int64(v + time.Millisecond))
		case string:
			f.SetString(v + "x")
		case int:
			f.SetInt(int64(v) + 1)
		default:
			f.SetUint(f.Uint() + 1)
		}
		name := reflect.TypeFor[task.Task]().Field(i).Name
		if name == "Lease" {
			continue
		}
		require.Empty(t, seen[changed.Tag()], "%s has changed", name)
		seen[changed.Tag()] = name
	}
	moved := base
	moved.Attribute, moved.LastError = "ae", ""
	require.NotEqual(t, base.Tag(), moved.Tag(), "texts do not run into each other")

	inShanghai := base
	inShanghai.ActionTime = base.ActionTime.In(time.FixedZone("CST", 8*3600))
	require.Equal(t, base.Tag(), inShanghai.Tag())
}

func TestMatches(t *testing.T) {
	one := task.Task{JobID: 1}
	for name, row := range map[string]struct {
		tags []string
		want bool
	}{
		"none": {nil, true}, "its own": {[]string{"x", one.Tag()}, true}, "any": {[]string{task.MatchAny}, true},
		"another's": {[]string{"x", ""}, false},
	} {
		require.Equal(t, row.want, one.Matches(row.tags), name)
	}
}
