package rest

import (
	"log/slog"
	"net/http"
	"time"
)

// Server makes the server that a handler runs in. Its limits keep slow and
// broken clients from holding connections: 5 s for the headers, a minute for a
// body, a minute from then to the end of the answer, two minutes idle; 16 KiB
// of headers.
//
// A route that may take longer takes its own deadline.
func Server(addr string, h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Addr:              addr,
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       time.Minute,
		WriteTimeout:      2 * time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
