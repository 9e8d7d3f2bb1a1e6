package api_test

import (
	"encoding/json"
	"testing"

	"github.com/timeoutcenter/toc/api"
)

func BenchmarkTask(b *testing.B) {
	v := api.From(full(), "order_close")
	b.Run("AppendJSON", func(b *testing.B) {
		b.ReportAllocs()
		var buf []byte
		for b.Loop() {
			buf = v.AppendJSON(buf[:0])
		}
	})
	b.Run("encoding", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := json.Marshal(v); err != nil {
				b.Fatal(err)
			}
		}
	})
}
