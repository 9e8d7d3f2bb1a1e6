// Package traffic is what people and programs do to a center: they submit tasks, singly, in batches and by INSERT, and change
// them, by the API, by tags and by SQL (docs/sql.md). It writes down what was asked and answered, for package audit. It speaks
// HTTP, by package client, and plain SQL. The soak sends it to real processes, the simulation to a center in virtual time.
//
// Each actor draws from a source of its own, made from the seed and the actor's numbers. So the choices of one do not depend on
// when another one makes its own.
package traffic
