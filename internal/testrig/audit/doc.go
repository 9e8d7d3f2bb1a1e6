// Package audit checks whether a center kept its promises. It gets the requests to the center (a History of each task), its
// runs (Runs), the faults meanwhile (Faults) and the rows at the end. The soak checks real processes with it, the simulation a
// center in virtual time. The audit of the product is another one: it records who did what (store/audit.go).
//
// A story is all that is known of a task. The model (model.go) is the contract of one task, as a program without concurrency: the
// history of each task (calls.go) must be linearizable by it, which package porcupine decides (linearize.go). Rules check the promises
// that no order of events can break: that tasks end, that they are on time, and the promises about many tasks at once (limits.go,
// tenure.go).
package audit
