package rest_test

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/server/rest"
)

const submitBody = `{"biz_type":"order_close","biz_id":"1234567890123","delay":"30m","attribute":"{\"shop\":7,\"user\":\"u-1234\"}","dedup_key":"order-42"}`

// BenchmarkSubmit measures POST /v1/tasks with a desk that stores nothing.
func BenchmarkSubmit(b *testing.B) {
	h := rest.New(rest.Config{Center: newFakeCenter(b), Status: calm{}})

	b.Run("recorder", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r := httptest.NewRequest("POST", "/v1/tasks", strings.NewReader(submitBody))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != 201 {
				b.Fatal(w.Body)
			}
		}
	})
	b.Run("recorder-alone", func(b *testing.B) { // what the measuring itself costs
		b.ReportAllocs()
		for b.Loop() {
			r := httptest.NewRequest("POST", "/v1/tasks", strings.NewReader(submitBody))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = w.Write([]byte(submitBody))
		}
	})
	b.Run("loopback", func(b *testing.B) { loopback(b, h) })
	b.Run("loopback-alone", func(b *testing.B) { // net/http on both ends
		loopback(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(submitBody))
		}))
	})
}

// loopback sends from 32 callers over real connections.
func loopback(b *testing.B, h http.Handler) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	server := rest.Server("", h, slog.New(slog.DiscardHandler))
	done := make(chan error)
	go func() { done <- server.Serve(l) }()
	defer func() {
		require.NoError(b, server.Close())
		require.ErrorIs(b, <-done, http.ErrServerClosed)
	}()
	transport := &http.Transport{MaxIdleConnsPerHost: 32}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	url := "http://" + l.Addr().String() + "/v1/tasks"

	b.ReportAllocs()
	b.SetParallelism(16) // times GOMAXPROCS
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			answer, err := client.Post(url, "application/json", strings.NewReader(submitBody))
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
			if answer.StatusCode != http.StatusCreated {
				b.Error(answer.Status)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}

// BenchmarkSettle measures a request that settles 100 leases.
func BenchmarkSettle(b *testing.B) {
	h := rest.New(rest.Config{Center: newFakeCenter(b), Status: calm{}})
	one := `{"lease":"3bw1f0sk8b4-1y0gkz9d6v3p2","do":"nack","error":"order 42 is locked"}`
	body := `{"settle":[` + strings.Repeat(one+",", 99) + one + "]}"
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest("POST", "/v1/leases/settle", strings.NewReader(body))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != 200 {
			b.Fatal(w.Body)
		}
	}
}

// BenchmarkSubmitBatch measures a batch of 1,000.
func BenchmarkSubmitBatch(b *testing.B) {
	h := rest.New(rest.Config{Center: newFakeCenter(b), Status: calm{}})
	var body bytes.Buffer
	body.WriteString(`{"tasks":[` + submitBody)
	for range 999 {
		body.WriteString("," + submitBody)
	}
	body.WriteString("]}")
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest("POST", "/v1/tasks/batch", bytes.NewReader(body.Bytes()))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != 200 {
			b.Fatal(w.Body)
		}
	}
	b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "tasks/s")
}
