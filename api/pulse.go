package api

// Pulse is how a node is and what it did in the last hour. The console of each node asks all nodes.
type Pulse struct {
	Node      string        `json:"node" example:"node-1"`
	Ready     bool          `json:"ready"`
	Degraded  []string      `json:"degraded" nullable:"false" doc:"As in GET /readyz."`
	Minutes   []PulseMinute `json:"minutes" nullable:"false" doc:"The last hour, the earliest first; the last one is under way."`
	Waiting   int           `json:"waiting" doc:"Tasks in this node's queue." example:"12"`
	Running   int           `json:"running" doc:"Tasks that are being processed by this node." example:"3"`
	Overdue   int           `json:"overdue" doc:"Pending tasks in this node's tables whose time has come." example:"0"`
	BizTypes  []PulseType   `json:"biz_types" nullable:"false" doc:"Those with work, the most overdue first; at most 100."`
	Databases []PulseServer `json:"databases" nullable:"false" doc:"Each database, as this node finds it."`
	Redis     *bool         `json:"redis,omitempty" doc:"Whether Redis answers. Left out if no business type needs it."`
	Consul    *bool         `json:"consul,omitempty" doc:"Whether Consul answers. Left out if there is none."`
	Clocks    []PulseClock  `json:"clocks" nullable:"false" doc:"The clocks that this node has compared its own with."`
}

// PulseMinute is what a node did in a minute.
type PulseMinute struct {
	At        Time        `json:"at" doc:"When the minute begins, RFC 3339." example:"2026-01-02T15:04:00.000Z"`
	Submitted int         `json:"submitted" doc:"Tasks stored." example:"250"`
	Runs      int         `json:"runs" doc:"Runs that ended." example:"250"`
	Failed    int         `json:"failed" doc:"Of those, failed ones." example:"2"`
	Late      []LateCount `json:"late" nullable:"false" doc:"Runs that started, by their lateness."`
}

// LateCount counts runs that started late by so much.
type LateCount struct {
	Under float64 `json:"under" doc:"Seconds: they were late by less than this, and by no less than the bound before. 0: by an hour or more." example:"0.005"`
	Runs  int     `json:"runs" example:"248"`
}

// PulseType is the work of a business type on a node.
type PulseType struct {
	Name    string  `json:"biz_type" example:"order_close"`
	Waiting int     `json:"waiting" doc:"Tasks in this node's queue." example:"12"`
	Running int     `json:"running" doc:"Tasks that are being processed by this node." example:"3"`
	Overdue int     `json:"overdue" doc:"Pending tasks in this node's tables whose time has come." example:"0"`
	Oldest  float64 `json:"oldest_overdue_seconds" doc:"How long the oldest of them is overdue." example:"0"`
}

// PulseServer is a database as a node finds it.
type PulseServer struct {
	Up     bool    `json:"up" doc:"It can be read and takes writes."`
	Fault  string  `json:"fault,omitempty" doc:"What is wrong with it." example:"no answer"`
	Since  Time    `json:"since,omitzero" doc:"Since when, RFC 3339."`
	Answer float64 `json:"answer_seconds,omitempty" doc:"Time of an answer, where it is slow." example:"0.7"`
}

// PulseClock is another clock.
type PulseClock struct {
	Of    string  `json:"of" enum:"redis,database,node" doc:"Whose clock."`
	Name  string  `json:"name" example:"3"`
	Ahead float64 `json:"ahead_seconds" doc:"How far this node's clock is ahead of it; negative: behind." example:"0.002"`
}
