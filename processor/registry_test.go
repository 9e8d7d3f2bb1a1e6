package processor_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/task"
)

func TestRegistry(t *testing.T) {
	reg := processor.NewRegistry()
	built, errDown := &struct{ processor.Func }{}, errors.New("the shop is down")
	require.NoError(t, reg.Register("shop", func(b task.BizType, settings any) (processor.Processor, error) {
		if settings != nil {
			return nil, errDown
		}
		return built, nil
	}))
	require.NoError(t, reg.Register("log", func(task.BizType, any) (processor.Processor, error) { return nil, nil }))
	require.True(t, reg.Has("shop"))
	require.False(t, reg.Has("mail"))

	require.EqualError(t, reg.Register("shop", func(task.BizType, any) (processor.Processor, error) { return nil, nil }),
		`register processor "shop": the name is taken`)
	require.EqualError(t, reg.Register("", func(task.BizType, any) (processor.Processor, error) { return nil, nil }),
		`register processor "": a name and a constructor are needed`)
	require.EqualError(t, reg.Register("mail", nil), `register processor "mail": a name and a constructor are needed`)

	p, err := reg.Build(task.BizType{Name: "order_close", Processor: "shop"}, nil)
	require.NoError(t, err)
	require.Same(t, built, p)
	_, err = reg.Build(task.BizType{Name: "order_close", Processor: "shop"}, 5)
	require.ErrorIs(t, err, errDown)
	require.EqualError(t, err, "biz_type order_close: processor shop: the shop is down")
	_, err = reg.Build(task.BizType{Name: "order_close", Processor: "mail"}, nil)
	require.EqualError(t, err, `biz_type order_close: processor "mail" is not registered; there are: log, shop`)
}
