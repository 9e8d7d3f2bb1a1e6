// Package soak proves a cluster: real processes on real Consul, MariaDB and Redis, under load, that are killed, paused,
// restarted and cut off, while nothing may be lost, nothing may fire early, nothing twice but what a fault explains, and
// no partition may have two owners at any instant. It has tests only.
//
//   - The nodes are this test binary, run again (node_test.go). Each writes down its runs and the spans of time in which
//     it was told that a partition is its own (book_test.go), so that the kernel has them when the process is killed.
//   - The fleet starts and breaks them (fleet_test.go); each node reaches each server by a line of its own.
//   - The load submits, cancels and reschedules over HTTP at any node (load_test.go).
//   - The faults have a begin, an end, and the time when the cluster was whole again (fault_test.go).
//   - The audit looks for two owners (audit_test.go), the verdict holds what was promised against what ran
//     (verdict_test.go).
//
// What it refuses to know is how the product does it: it speaks HTTP, and SQL to count rows.
package soak
