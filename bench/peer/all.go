package peer

import (
	"time"

	"github.com/timeoutcenter/toc/configs"
)

// All makes one of each that is measured, in the order of the tables.
func All() []Peer {
	var list []Peer
	layouts := []Layout{Small, Large, Embedded}
	modes := []string{configs.ModeRedis, configs.ModeScan}
	for _, overHTTP := range []bool{false, true} {
		for _, mode := range modes {
			for _, l := range layouts {
				list = append(list, NewToc(mode, l, overHTTP))
			}
		}
	}
	list = append(list, NewPulled(configs.ModeRedis, Small))
	for _, l := range []Layout{Small, Large} { // SQLite has one node
		for _, nodes := range []int{1, 2, 4} {
			list = append(list, NewNodes(configs.ModeRedis, l, nodes))
		}
	}
	return append(list,
		newAsynq(0), newAsynq(100*time.Millisecond), &riverPeer{}, &dbosPeer{}, &beanstalkPeer{}, &bullmqPeer{},
		&natsPeer{}, rocketMQ(1000), rocketMQ(100), artemis(), redisson(), dbScheduler(), quartz(), jobRunr(),
		&sqlLoop{layout: Small}, &sqlLoop{layout: Large}, &redisScripts{},
	)
}

// Absentee was to be measured and cannot be built.
type Absentee struct {
	Info
	Missing string // why
}

// Absent stand in the tables as missing.
func Absent() []Absentee {
	return []Absentee{{
		Info{Name: "delayqueue", Parts: everything &^ Batches},
		"github.com/hdt3213/delayqueue v1.0.6 is not in the checksum database of Go modules (404), so its source cannot be verified",
	}}
}
