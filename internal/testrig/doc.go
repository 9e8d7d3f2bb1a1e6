// Package testrig gives tests real servers: MariaDB (or MySQL 8), Redis, Consul, Prometheus and Kafka, and a browser. It starts
// installed programs on free loopback ports, in directories that vanish with them. A test asks for a server and gets an
// address and names that no other test uses. The rig contains nothing of the product: no table, no key, no configuration of
// ours.
//
// There are two kinds of server:
//
//   - Shared: [MySQL], [Redis] and [Consul]. One of each serves the whole test run; each test has its own prefix. The
//     program with-servers starts them once for `go test ./...` and hands their addresses down by environment
//     ([EnvMySQL], [EnvRedis], [EnvConsul]). Without it, each test process starts its own when the first test asks, and
//     [Main] ends them.
//   - Private: [StartMySQL], [StartReplicatedMySQL], [StartRedis], [StartRedisCluster], [StartConsul], [StartPrometheus] and [StartKafka]. One test's
//     own, to stop, freeze, kill and start again.
//
// [Chromium] is a browser, one for all tests of a process.
//
// [StartProxy] stands between a client and any of them, to break the line while the server lives.
//
// Nothing is left behind. A server dies with the process that started it, even by SIGKILL (package child); a
// directory whose process died before it could clean up is swept by the next run (workdir.go). A server that is not
// installed fails the test: no test passes by skipping, but for `go test -short`, which runs what needs no server, and for
// Kafka, which takes a Java that not every machine has: make test says so there.
//
// Another kind of server is one more implementation of engine (server.go) and one more entry in shared.go.
package testrig
