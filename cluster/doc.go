// Package cluster answers which partitions are this node's.
//
// Locks come in, ownership goes out: a set of partitions that changes now and
// then. It refuses to know what is done with a partition.
//
// Single is the cluster of one node: it owns every partition of each database
// whose exclusive lock it holds, so that a second process on the same store is
// refused. Consul is a node among others that meet in Consul.
package cluster
