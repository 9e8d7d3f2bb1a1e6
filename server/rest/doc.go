// Package rest is the HTTP face of the timeout center: the routes, the strict reading
// of what comes in, and the one table that turns errors into answers (problem.go). The
// JSON shapes are those of package api.
//
// The package reads and checks each request, calls the Center or the Status with
// typed values, and writes the answer as JSON. It does not depend on where tasks are
// stored, who runs them and when.
//
//	routes.go    every route, in one list
//	describe.go  what the documentation says about each of them
//	direct.go    the routes that huma documents, but does not serve: requests of them come by the thousand
//	handlers.go  what a route reads, and the handlers that are no single call of the center
//	body.go      a body: its limits and content type, strict reading, what it must give
//	json.go      strict reading of JSON and of the fields of a body
//	problem.go   errors → RFC 9457 problems
//	guard.go auth.go budget.go   what surrounds the routes
//	openapi.go docs.go docsview.go   /openapi.json and /docs, made from the same routes
//
// huma routes, reads parameters, writes answers and makes the OpenAPI document.
// Bodies are read here instead: encoding/json, and so huma, takes BIZ_ID for
// biz_id, the last of two equal names, and U+FFFD for bytes that are no text.
// A timeout center must not guess, so all of these are refused by name.
package rest
