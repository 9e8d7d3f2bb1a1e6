// Package soak proves the center's promises while everything breaks. Real processes work on real servers; callers change
// tasks by the API and hands by SQL; runs fail, hang and end their process; nodes, servers and lines are killed, stopped
// and cut. Nothing may be lost, fire early, run twice but where a fault explains it, or be undone once it was
// acknowledged. It has tests only.
//
//   - An arena is what a soak takes place in: three nodes with Consul and MariaDB, with one Redis or a Redis Cluster, or
//     one embedded node (soak_test.go).
//   - Two arenas have their own loads and rules: consumers that lease (pull_test.go), records that come and go
//     (kafka_test.go).
//   - The nodes are this test binary, run again (node_test.go). Each records its runs and the spans of time in which it
//     got the answer that it owns a partition (ledger_test.go), so that the kernel has them when the process is killed.
//   - The fleet starts and stops the nodes (fleet_test.go, process_test.go); each node reaches each server by its own line.
//   - The load, and the callers, hands and consumers, are those of package traffic. A hash of biz_id and attempts decides how a
//     run behaves.
//   - A fault has a begin, an end, and the time when the center was whole again (fault_test.go).
//   - The rules are those of package audit. It gets what the processes have written down (records_test.go) and the rows
//     (rows_test.go).
//   - mutations/ has patches that break the product, one promise each. scripts/soak-mutations.sh expects the audit to find
//     them all, or the Go test that a patch names: a rule that finds nothing then would say nothing.
//
// The soak does not depend on how the product keeps its promises: it speaks HTTP, and the SQL of docs/sql.md.
package soak
