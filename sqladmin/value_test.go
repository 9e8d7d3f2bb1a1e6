package sqladmin

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCompareOrdersAllValues(t *testing.T) {
	inOrder := []any{
		nil, math.Inf(-1), json.Number("-18446744073709551616.5"), int64(math.MinInt64), int64(-1), 0.5, int64(1),
		json.Number("1.25"), 1.5, json.Number("10"), int64(math.MaxInt64), uint64(1 << 63), uint64(math.MaxUint64),
		1e30, math.Inf(1), "", "10", "9", "A", "a", "a ", "zwölf", []byte("A"), []byte("a"),
	}
	for i, a := range inOrder {
		for j, b := range inOrder {
			require.Equal(t, compareInts(i, j), compare(a, b), "%v and %v", a, b)
		}
	}
	require.Zero(t, compare(int64(2), json.Number("2.00")))
	require.Zero(t, compare(uint64(2), 2.0))
	shuffled := slices.Clone(inOrder)
	slices.Reverse(shuffled)
	slices.SortFunc(shuffled, compare)
	require.Equal(t, inOrder, shuffled)
}

func compareInts(a, b int) int { return min(1, max(-1, a-b)) }

func TestKeysAreEqualForEqualRowsOnly(t *testing.T) {
	same := [][][]any{
		{{int64(1)}, {uint64(1)}, {1.0}, {json.Number("1")}, {json.Number("1.00")}},
		{{nil, "a"}}, {{"a", nil}}, {{"", "a"}}, {{"a", ""}}, {{"a"}}, {{"A"}}, {{"a "}}, {{[]byte("a")}}, {{"1"}}, {{"1:", "a"}}, {{"1", ":a"}},
		{{0.0}, {math.Copysign(0, -1)}}, {{math.Inf(1)}}, {{math.Inf(-1)}}, {{nil}},
	}
	for i, a := range same {
		for j, b := range same {
			for _, x := range a {
				for _, y := range b {
					require.Equal(t, i == j, key(x) == key(y), "%v and %v", x, y)
				}
			}
		}
	}
}

func TestMeanRoundsAsMySQLDoes(t *testing.T) {
	mean := func(inexact bool, cells ...[]any) any {
		f := &meanFold{inexact: inexact}
		for _, c := range cells {
			require.NoError(t, f.add(c))
		}
		return f.value()
	}
	require.Equal(t, json.Number("0.6667"), mean(false, []any{json.Number("1"), int64(2)}, []any{json.Number("1"), int64(1)}))
	require.Equal(t, json.Number("-0.166667"), mean(false, []any{json.Number("-0.50"), int64(3)}))
	require.Equal(t, 0.75, mean(false, []any{1.5, int64(2)}))
	require.Equal(t, 0.5, mean(true, []any{int64(1), int64(2)}))
	require.Nil(t, mean(false, []any{nil, int64(0)}))
}
