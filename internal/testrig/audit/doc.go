// Package audit asks whether a center kept its promises. It knows what was asked of the center (a History of each task), what
// ran (Runs), what was broken meanwhile (Faults) and how the rows stand in the end. The soak asks it of real processes, the
// simulation of a center in virtual time.
//
// A story is all that is known of a task. The model (model.go) is the contract of one task, as a program without concurrency: the
// history of each task (calls.go) must be linearizable by it, which package porcupine decides (linearize.go). Rules ask what no order
// of events can break: that tasks end, that they are on time, and what is promised of many tasks at once (limits.go, tenure.go).
package audit
