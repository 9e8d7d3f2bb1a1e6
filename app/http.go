package app

import "net/http"

func (a *App) httpServer() *http.Server { return &http.Server{Handler: http.NotFoundHandler()} }
