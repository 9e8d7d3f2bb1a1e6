package webhook_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/timeoutcenter/toc/processor/webhook"
)

// BenchmarkWebhook calls a sink in the same process: its share is in the times,
// and in the allocations (about half).
func BenchmarkWebhook(b *testing.B) {
	sink := serve(b, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	for name, secret := range map[string]string{"plain": "", "signed": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"} {
		w := open(b, webhook.Config{URL: sink.URL + "/fire", Secret: secret})
		b.Run(name+"/one", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := w.Process(b.Context(), order()); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(orderClose.Workers / 2)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := w.Process(b.Context(), order()); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
		})
	}
}

// BenchmarkBareClient is the floor: net/http alone against the same sink.
func BenchmarkBareClient(b *testing.B) {
	sink := serve(b, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	transport := &http.Transport{MaxIdleConnsPerHost: orderClose.Workers, MaxConnsPerHost: orderClose.Workers}
	client := &http.Client{Transport: transport}
	b.Cleanup(transport.CloseIdleConnections)
	body := make([]byte, 256)
	b.ReportAllocs()
	for b.Loop() {
		resp, err := client.Post(sink.URL+"/fire", "application/json", bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}
