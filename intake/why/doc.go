// Package why explains in words where a task is waiting and what is holding it up.
//
// Facts come in: the row of a task, and its owner's view of it. A list of causes comes out, the most
// important first. Each cause is a function from the facts to a sentence; causes.go lists them all.
//
// The package asks nobody: app gathers the facts.
package why
