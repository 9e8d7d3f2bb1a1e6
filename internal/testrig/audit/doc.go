// Package audit asks whether a center kept its promises. It knows what was asked of the center (a History of each task), what
// ran (Runs), what was broken meanwhile (Faults) and how the rows stand in the end. The soak asks it of real processes, the
// simulation of a center in virtual time.
//
// A Story is all that is known of a task. For each column of the task's row it has a register: all values that may have been
// written there, and when. What is read must be one of those. Each rule is one promise, asked of one story.
package audit
