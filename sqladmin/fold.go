package sqladmin

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
)

// folder merges the cells that the shards answer for one select item.
type folder interface {
	add(cells []any) error
	value() any
}

// firstFold is for what is the same in all rows of a group.
type firstFold struct {
	has   bool
	first any
}

func (f *firstFold) add(cells []any) error {
	if !f.has {
		f.has, f.first = true, cells[0]
	}
	return nil
}

func (f *firstFold) value() any { return f.first }

type countFold struct{ n int64 }

func (f *countFold) add(cells []any) error {
	n, ok := cells[0].(int64)
	if !ok {
		return fmt.Errorf("COUNT answered %v", cells[0])
	}
	f.n += n
	return nil
}

func (f *countFold) value() any { return f.n }

// extremeFold is MIN and MAX.
type extremeFold struct {
	most bool
	best any
}

func (f *extremeFold) add(cells []any) error {
	v := cells[0]
	if v == nil {
		return nil
	}
	if f.best == nil || (compare(v, f.best) > 0) == f.most && compare(v, f.best) != 0 {
		f.best = v
	}
	return nil
}

func (f *extremeFold) value() any { return f.best }

// flipFold is MIN and MAX of an unsigned column in SQLite; its cells have the
// sign bit turned over.
type flipFold struct{ extremeFold }

func (f *flipFold) value() any {
	if v, ok := f.best.(int64); ok {
		return uint64(v) ^ signBit
	}
	return f.best
}

// sumFold adds exactly, with as many decimals as the summands have, until a
// floating-point number comes: then the sum is one too.
type sumFold struct {
	has     bool
	total   big.Rat
	scale   int
	inexact bool
	rough   float64
}

func (f *sumFold) add(cells []any) error {
	v := cells[0]
	if v == nil {
		return nil
	}
	f.has = true
	if x, ok := v.(float64); ok {
		f.inexact = true
		f.rough += x
		return nil
	}
	r := exact(v)
	if r == nil {
		return fmt.Errorf("SUM answered %v", v)
	}
	if n, ok := v.(json.Number); ok {
		if _, decimals, ok := strings.Cut(string(n), "."); ok {
			f.scale = max(f.scale, len(decimals))
		}
	}
	f.total.Add(&f.total, r)
	return nil
}

func (f *sumFold) value() any {
	switch {
	case !f.has:
		return nil
	case f.inexact:
		return f.float()
	case f.scale == 0:
		return whole(f.total.Num())
	}
	return json.Number(f.total.FloatString(f.scale))
}

func (f *sumFold) float() float64 {
	exactly, _ := f.total.Float64()
	return exactly + f.rough
}

// decimalsOfMean is how many decimals AVG adds to those of its argument: MySQL's
// default div_precision_increment.
const decimalsOfMean = 4

// meanFold is AVG, carried as SUM and COUNT.
type meanFold struct {
	sum     sumFold
	count   countFold
	inexact bool // SQLite's AVG is always a floating-point number
}

func (f *meanFold) add(cells []any) error {
	if err := f.sum.add(cells[:1]); err != nil {
		return err
	}
	return f.count.add(cells[1:])
}

func (f *meanFold) value() any {
	switch {
	case f.count.n == 0 || !f.sum.has:
		return nil
	case f.inexact || f.sum.inexact:
		return f.sum.float() / float64(f.count.n)
	}
	mean := new(big.Rat).Quo(&f.sum.total, new(big.Rat).SetInt64(f.count.n))
	return json.Number(mean.FloatString(f.sum.scale + decimalsOfMean))
}

// halvesFold is SUM and AVG of an unsigned column in SQLite, carried as the sums
// of the upper and the lower 32 bits and COUNT.
type halvesFold struct {
	upper, lower sumFold
	count        countFold
	mean         bool
}

func (f *halvesFold) add(cells []any) error {
	if err := f.upper.add(cells[:1]); err != nil {
		return err
	}
	if err := f.lower.add(cells[1:2]); err != nil {
		return err
	}
	return f.count.add(cells[2:])
}

func (f *halvesFold) value() any {
	if f.count.n == 0 {
		return nil
	}
	total := new(big.Int).Lsh(f.upper.total.Num(), 32)
	total.Add(total, f.lower.total.Num())
	if !f.mean {
		return whole(total)
	}
	mean, _ := new(big.Rat).SetFrac(total, big.NewInt(f.count.n)).Float64()
	return mean
}
