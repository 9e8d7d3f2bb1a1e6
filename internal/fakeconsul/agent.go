package fakeconsul

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// service is an instance of a service.
type service struct {
	ID, Service       string
	Tags              []string
	Address           string
	Meta              map[string]string
	Port              int
	EnableTagOverride bool

	created, modified uint64
	token             string
}

// check is the health of a service, or of the machine. The agent knows its Status and Output, the server what was
// reported.
type check struct {
	CheckID, Name, Notes, Type string
	Status, Output             string
	ServiceID, ServiceName     string
	Tags                       []string
	CreateIndex, ModifyIndex   uint64

	reported    report
	token       string // with which the agent reports it
	ttl         time.Duration
	told        time.Time // when its status was last set by a request
	deregisters time.Duration
	timer, reap *time.Timer
}

type report struct{ status, output string }

// stop stops the timers.
func (k *check) stop() {
	for _, timer := range []*time.Timer{k.timer, k.reap} {
		if timer != nil {
			timer.Stop()
		}
	}
}

// run lets the check become critical a TTL from now. The caller holds mu.
func (k *check) run(c *Consul) {
	if k.ttl == 0 {
		return
	}
	if k.timer != nil {
		k.timer.Stop()
	}
	var timer *time.Timer
	timer = time.AfterFunc(k.ttl, c.unlessDown(func() {
		if c.checks[k.CheckID] == k && k.timer == timer {
			c.set(k, critical, "TTL expired")
		}
	}))
	k.timer = timer
}

// set sets what the agent knows of a check, and reports it. The caller holds mu.
func (c *Consul) set(k *check, status, output string) {
	if was := k.Status; status != critical || was != critical {
		if k.reap != nil {
			k.reap.Stop()
		}
		if status == critical && k.deregisters > 0 {
			c.reapLater(k)
		}
	}
	k.Status, k.Output = status, output
	c.report(k)
}

// reapLater removes the service when the agent finds that the check has been critical for too long. The caller holds mu.
func (c *Consul) reapLater(k *check) {
	rounds := (time.Since(c.started)+max(k.deregisters, reapAfter))/reapEvery + 1
	k.reap = time.AfterFunc(time.Until(c.started.Add(rounds*reapEvery)), c.unlessDown(func() {
		if c.checks[k.CheckID] == k && k.Status == critical {
			c.deregister(c.services[k.ServiceID])
		}
	}))
}

// report tells the server of a check, if the token of its registration may. A check that becomes critical ends its
// sessions, at the same index. The caller holds mu.
func (c *Consul) report(k *check) {
	now := report{k.Status, k.Output}
	if k.reported == now || c.refuses(k.token) != "" {
		return
	}
	c.commit()
	k.reported = now
	c.recordChange(k)
	if k.Status == critical {
		c.endSessionsOf(k.CheckID)
	}
}

// recordChange gives a check the present index. The caller holds mu.
func (c *Consul) recordChange(k *check) {
	k.ModifyIndex = c.index
	k.CreateIndex = cmp.Or(k.CreateIndex, c.index)
	c.catalogIndex, c.byName[k.ServiceName] = c.index, c.index
}

func (c *Consul) endSessionsOf(id string) {
	for _, s := range c.sessionList() {
		if slices.Contains(s.checks(), id) {
			c.endSession(s)
		}
	}
}

// dropCheck removes a check at the present index, and ends its sessions. The caller holds mu.
func (c *Consul) dropCheck(k *check) {
	k.stop()
	delete(c.checks, k.CheckID)
	c.catalogIndex, c.byName[k.ServiceName] = c.index, c.index
	c.endSessionsOf(k.CheckID)
}

// checksOf lists the checks of a service by their ids. The caller holds mu.
func (c *Consul) checksOf(id string) []*check {
	var list []*check
	for _, k := range c.checks {
		if k.ServiceID == id {
			list = append(list, k)
		}
	}
	slices.SortFunc(list, func(a, b *check) int { return cmp.Compare(a.CheckID, b.CheckID) })
	return list
}

// deregister removes a service and its checks. The caller holds mu.
func (c *Consul) deregister(s *service) {
	c.commit()
	for _, k := range c.checksOf(s.ID) {
		c.dropCheck(k)
	}
	delete(c.services, s.ID)
	c.catalogIndex, c.byName[s.Service] = c.index, c.index
	for _, other := range c.services {
		if other.Service == s.Service {
			return
		}
	}
	delete(c.byName, s.Service)
	c.extinct = c.index
}

type checkDefinition struct {
	CheckID, Name, TTL, Status, Notes, DeregisterCriticalServiceAfter string
}

func (c *Consul) registerService(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		ID, Name, Address string
		Tags              []string
		Meta              map[string]string
		Port              int
		EnableTagOverride bool
		Check             *checkDefinition
		Checks            []checkDefinition
	}
	if !decode(w, r, &asked) {
		return
	}
	if asked.Name == "" {
		http.Error(w, "Missing service name", http.StatusBadRequest)
		return
	}
	if asked.Check != nil {
		asked.Checks = append(asked.Checks, *asked.Check)
	}
	var checks []*check
	s := &service{
		ID: cmp.Or(asked.ID, asked.Name), Service: asked.Name, Tags: asked.Tags, Address: asked.Address, Meta: asked.Meta, Port: asked.Port,
		EnableTagOverride: asked.EnableTagOverride, token: token(r),
	}
	if s.Tags == nil {
		s.Tags = []string{}
	}
	if s.Meta == nil {
		s.Meta = map[string]string{}
	}
	for i, d := range asked.Checks {
		k := &check{
			CheckID: d.CheckID, Name: cmp.Or(d.Name, fmt.Sprintf("Service '%s' check", s.Service)), Notes: d.Notes, Type: "ttl", Status: cmp.Or(d.Status, critical),
			ServiceID: s.ID, ServiceName: s.Service, Tags: s.Tags, token: s.token,
		}
		if k.CheckID == "" {
			k.CheckID = "service:" + s.ID
			if len(asked.Checks) > 1 {
				k.CheckID += ":" + strconv.Itoa(i+1)
			}
		}
		k.ttl, _ = time.ParseDuration(d.TTL)
		k.deregisters, _ = time.ParseDuration(d.DeregisterCriticalServiceAfter)
		if k.ttl == 0 {
			unsupported(w, "checks but those with a TTL")
			return
		}
		checks = append(checks, k)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.register(s, checks)
}

// register adds a service, or changes it. A check that is known keeps its status, and its TTL begins anew; those that the
// request lacks stay. The caller holds mu.
func (c *Consul) register(s *service, checks []*check) {
	c.commit()
	before := c.services[s.ID]
	if before != nil {
		s.created, s.modified = before.created, before.modified
		if before.Service != s.Service {
			delete(c.byName, before.Service)
		}
	}
	s.created = cmp.Or(s.created, c.index)
	c.services[s.ID] = s
	if same := before != nil && reflect.DeepEqual(agentView(before), agentView(s)); !same {
		s.modified = c.index
		c.catalogIndex, c.byName[s.Service] = c.index, c.index
	}
	for _, k := range checks {
		if had := c.checks[k.CheckID]; had != nil {
			had.stop()
			k.Status, k.Output, k.reported, k.told = had.Status, had.Output, had.reported, had.told
			k.CreateIndex, k.ModifyIndex = had.CreateIndex, had.ModifyIndex
		}
		c.checks[k.CheckID] = k
		k.run(c)
		if k.Status == critical && k.deregisters > 0 {
			c.reapLater(k)
		}
		if now := (report{k.Status, k.Output}); now != k.reported { // with the service, by one command
			k.reported = now
			c.recordChange(k)
			if k.Status == critical {
				c.endSessionsOf(k.CheckID)
			}
		}
	}
}

func (c *Consul) deregisterService(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.services[r.PathValue("id")]
	switch {
	case s != nil:
		c.deregister(s)
	case c.tokens != nil:
		fail(w, "Unknown service {%q {}}", r.PathValue("id"))
	}
}

// noReason is Consul's own text.
const noReason = "Maintenance mode is enabled for this service, but no reason was provided. This is a default message."

func (c *Consul) maintainService(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := r.PathValue("id")
	s, known := c.services[id], c.checks["_service_maintenance:"+id]
	enable, err := strconv.ParseBool(r.URL.Query().Get("enable"))
	switch {
	case err != nil:
		http.Error(w, "Missing value for enable", http.StatusBadRequest)
	case s == nil:
		http.Error(w, fmt.Sprintf("No service registered with ID %q", id), http.StatusNotFound)
	case enable && known == nil:
		k := &check{
			CheckID: "_service_maintenance:" + id, Name: "Service Maintenance Mode", Notes: cmp.Or(r.URL.Query().Get("reason"), noReason), Type: "maintenance",
			Status: critical, ServiceID: id, ServiceName: s.Service, Tags: s.Tags, token: token(r),
		}
		c.checks[k.CheckID] = k
		c.report(k)
	case !enable && known != nil:
		c.commit()
		c.dropCheck(known)
	}
}

func (c *Consul) updateCheck(w http.ResponseWriter, r *http.Request) {
	var asked struct{ Status, Output string }
	if !decode(w, r, &asked) {
		return
	}
	if !slices.Contains([]string{passing, "warning", critical}, asked.Status) {
		http.Error(w, fmt.Sprintf("Invalid check status: '%s'", asked.Status), http.StatusBadRequest)
		return
	}
	id := r.PathValue("id")
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.checks[id]
	switch {
	case k == nil && c.tokens != nil:
		fail(w, "Unknown check %q", id)
	case k == nil || k.ttl == 0:
		fail(w, "CheckID %q does not have associated TTL", id)
	default:
		k.told = time.Now()
		k.run(c)
		c.set(k, asked.Status, asked.Output)
	}
}

func (c *Consul) deregisterCheck(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.checks[r.PathValue("id")]
	switch {
	case k != nil:
		c.commit()
		c.dropCheck(k)
	case c.tokens != nil:
		fail(w, "Unknown check %q", r.PathValue("id"))
	}
}

type weights struct{ Passing, Warning int }

// agentView is a service as the agent shows it.
func agentView(s *service) any {
	return struct {
		ID, Service       string
		Tags              []string
		Meta              map[string]string
		Port              int
		Address           string
		Weights           weights
		EnableTagOverride bool
	}{s.ID, s.Service, s.Tags, s.Meta, s.Port, s.Address, weights{1, 1}, s.EnableTagOverride}
}

// view is a check as the agent or the server shows it.
func (c *Consul) view(k *check, known report, created, modified uint64) any {
	return struct {
		Node, CheckID, Name, Status, Notes, Output, ServiceID, ServiceName string
		ServiceTags                                                        []string
		Type                                                               string
		Definition                                                         struct{}
		CreateIndex, ModifyIndex                                           uint64
	}{c.Node, k.CheckID, k.Name, known.status, k.Notes, known.output, k.ServiceID, k.ServiceName, k.Tags, k.Type, struct{}{}, created, modified}
}

func (c *Consul) listServices(w http.ResponseWriter, r *http.Request) {
	list := map[string]any{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, s := range c.services {
		fields := map[string]string{"ID": id, "Service": s.Service}
		for key, value := range s.Meta {
			fields["Meta."+key] = value
		}
		match, ok := matches(r.URL.Query().Get("filter"), fields)
		if !ok {
			unsupported(w, "such a filter")
			return
		}
		if match {
			list[id] = agentView(s)
		}
	}
	answer(w, list)
}

func (c *Consul) listChecks(w http.ResponseWriter, r *http.Request) {
	list := map[string]any{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, k := range c.checks {
		match, ok := matches(r.URL.Query().Get("filter"), map[string]string{"CheckID": id, "ServiceID": k.ServiceID, "ServiceName": k.ServiceName, "Status": k.Status})
		if !ok {
			unsupported(w, "such a filter")
			return
		}
		if match && id != serfHealth { // that one is the servers' own
			list[id] = c.view(k, report{k.Status, k.Output}, 0, 0)
		}
	}
	answer(w, list)
}

// equation is a part of a filter; developer.hashicorp.com/consul/api-docs/features/filtering has more.
var equation = regexp.MustCompile(`^([A-Za-z.]+) == "([^"]*)"$`)

// matches reports whether fields are as a filter says; ok is false if it cannot read the filter.
func matches(filter string, fields map[string]string) (match, ok bool) {
	match = true
	if filter == "" {
		return true, true
	}
	for part := range strings.SplitSeq(filter, " and ") {
		found := equation.FindStringSubmatch(part)
		if found == nil {
			return false, false
		}
		match = match && fields[found[1]] == found[2]
	}
	return match, true
}

// healthOfService lists the instances of a service with their checks. Its index is that of their last change; without an
// instance, that of the last service that went.
func (c *Consul) healthOfService(w http.ResponseWriter, r *http.Request) {
	name, asked := r.PathValue("name"), r.URL.Query()
	onlyPassing, err := strconv.ParseBool(cmp.Or(asked.Get("passing"), strconv.FormatBool(asked.Has("passing"))))
	if err != nil {
		http.Error(w, "Invalid value for ?passing", http.StatusBadRequest)
		return
	}
	w.Header().Set("X-Consul-Effective-Consistency", "leader")
	c.query(w, r, func() (uint64, []byte) {
		list := []any{}
		for _, id := range slices.Sorted(maps.Keys(c.services)) {
			s := c.services[id]
			tagged := !asked.Has("tag") || slices.ContainsFunc(s.Tags, func(tag string) bool { return strings.EqualFold(tag, asked.Get("tag")) })
			if s.Service != name || !tagged {
				continue
			}
			checks := append([]*check{c.checks[serfHealth]}, c.checksOf(id)...)
			if onlyPassing && slices.ContainsFunc(checks, func(k *check) bool { return k.reported.status != passing }) {
				continue
			}
			list = append(list, c.instance(s, checks))
		}
		index, exists := c.byName[name]
		if !exists {
			index = cmp.Or(c.extinct, c.catalogIndex)
		}
		return index, marshal(list)
	})
}

// instance is a service as the server shows it.
func (c *Consul) instance(s *service, checks []*check) any {
	type proxy struct{ MeshGateway, Expose struct{} }
	var views []any
	for _, k := range checks {
		views = append(views, c.view(k, k.reported, k.CreateIndex, k.ModifyIndex))
	}
	const address = "127.0.0.1"
	return map[string]any{
		"Node": map[string]any{
			"ID": "fa4e0000-0000-4000-8000-000000000000", "Node": c.Node, "Address": address, "Datacenter": "dc1",
			"TaggedAddresses": map[string]string{"lan": address, "lan_ipv4": address, "wan": address, "wan_ipv4": address},
			"Meta":            map[string]string{"consul-network-segment": ""}, "CreateIndex": 5, "ModifyIndex": 7,
		},
		"Service": map[string]any{
			"ID": s.ID, "Service": s.Service, "Tags": s.Tags, "Address": s.Address, "Meta": s.Meta, "Port": s.Port, "Weights": weights{1, 1},
			"EnableTagOverride": s.EnableTagOverride, "Proxy": proxy{}, "Connect": struct{}{}, "CreateIndex": s.created, "ModifyIndex": s.modified,
		},
		"Checks": views,
	}
}
