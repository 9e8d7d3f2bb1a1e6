// Package traffic acts like the people and programs that use a center. They submit tasks, singly, in batches and by INSERT,
// and change them, by the API, by tags and by SQL (docs/sql.md). It records requests and answers, for package audit. It speaks
// HTTP, by package client, and plain SQL. The soak sends it to real processes, the simulation to a center in virtual time.
//
// Each actor draws from a separate source of random numbers, made from the seed and the actor's numbers. So the choices of one
// actor do not depend on when another makes a choice.
package traffic
