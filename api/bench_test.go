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

// BenchmarkReadLeased reads an answer with 100 leased tasks.
func BenchmarkReadLeased(b *testing.B) {
	a := api.LeaseAnswer{}
	for range 100 {
		a.Tasks = append(a.Tasks, api.LeasedTask{Lease: api.Lease{JobID: 413351953711104, Number: 1 << 60}, Attempt: 1, Task: api.From(full(), "order_close")})
	}
	text := a.AppendJSON(nil)
	for name, read := range map[string]func(text []byte, a *api.LeaseAnswer) error{
		"ReadJSON": func(text []byte, a *api.LeaseAnswer) error { return a.ReadJSON(text) },
		"encoding": func(text []byte, a *api.LeaseAnswer) error { return json.Unmarshal(text, a) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var a api.LeaseAnswer
				if err := read(text, &a); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
