// Package sim runs whole centers in virtual time, breaks them, and asks whether they kept their promises. A seed chooses the
// load, the changes, the faults and their times, so a run can be repeated; goroutines that are ready at the same instant run in
// any order, so it may not be the same to the last step.
//
//	world.go    a center of package virtual and its processes, what they write down, and how a run of it begins and ends
//	types.go    the business types, which have all features together, and the configuration
//	faults.go   what is done to the center: by one actor to its servers, nodes and lines, by another to its clocks, files and types
//	operator.go who redrives and discards dead tasks
//	redis.go    a look into the slots in Redis each second, and a minute after the end
//
// The load, the hands and the consumers are those of package traffic, and the rules are those of package audit, like in the soak.
package sim
