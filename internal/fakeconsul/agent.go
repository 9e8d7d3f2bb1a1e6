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

const (
	node       = "fake"
	serfHealth = "serfHealth"
	passing    = "passing"
	critical   = "critical"

	// reapEvery is how often the agent looks for services that were critical for too long, and reapAfter the least time
	// that it takes for too long; developer.hashicorp.com/consul/api-docs/agent/check.
	reapEvery, reapAfter = 30 * time.Second, time.Minute
)

// service is an instance of a service.
type service struct {
	serviceView
	token             string
	created, modified uint64
}

// serviceView is how the agent shows it.
type serviceView struct {
	ID, Service       string
	Tags              []string
	Meta              map[string]string
	Port              int
	Address           string
	Weights           struct{ Passing, Warning int }
	EnableTagOverride bool
}

// check is the health of a service. The agent has its own view of it, the servers have the view that was reported last.
type check struct {
	checkView
	reported    checkView
	token       string        // with which the agent reports it
	ttl         time.Duration // 0: none
	told        time.Time     // when a request last set it
	deregisters time.Duration // after how long the service goes; 0: it stays
	timer, reap *timer
}

type checkView struct {
	Node, CheckID, Name, Status, Notes, Output, ServiceID, ServiceName string
	ServiceTags                                                        []string
	Type                                                               string
	Definition                                                         struct{}
	CreateIndex, ModifyIndex                                           uint64
}

// machine is the check of the machine, which never fails.
var machine = checkView{
	Node: node, CheckID: serfHealth, Name: "Serf Health Status", Status: passing, Output: "Agent alive and reachable", ServiceTags: []string{}, CreateIndex: 5, ModifyIndex: 5,
}

func (k *check) stop() {
	k.timer.Stop()
	k.reap.Stop()
}

// run lets a check become critical a TTL from now. The caller holds mu.
func (c *Consul) run(k *check) {
	k.timer.Stop()
	if k.ttl > 0 {
		k.timer = c.after(k.ttl, func() { c.set(k, critical, "TTL expired") })
	}
}

// set sets the agent's view of a check, and reports it if the servers have another one. The caller holds mu.
func (c *Consul) set(k *check, status, output string) {
	was := k.Status
	if k.Status, k.Output = status, output; status != was {
		c.reapLater(k)
	}
	if k.reported.Status != status || k.reported.Output != output {
		c.report(k)
	}
}

// reapLater removes the service of a critical check when the agent finds that it has been so for too long. The caller
// holds mu.
func (c *Consul) reapLater(k *check) {
	k.reap.Stop()
	if k.Status == critical && k.deregisters > 0 {
		rounds := (time.Since(c.started)+max(k.deregisters, reapAfter))/reapEvery + 1
		k.reap = c.after(time.Until(c.started.Add(rounds*reapEvery)), func() { c.deregister(c.services[k.ServiceID]) })
	}
}

// report reports a check to the server, if the token of its registration still may. The caller holds mu.
func (c *Consul) report(k *check) {
	if c.refuses(k.token) == "" {
		c.commit()
		c.record(k)
	}
}

// record sets the server's view of a check, at the present index. A critical check ends its sessions. The caller holds mu.
func (c *Consul) record(k *check) {
	created := cmp.Or(k.reported.CreateIndex, c.index)
	k.reported = k.checkView
	k.reported.CreateIndex, k.reported.ModifyIndex = created, c.index
	c.recordChange(k.ServiceName)
	if k.Status == critical {
		c.endSessionsOf(k.CheckID)
	}
}

// recordChange gives a service the present index. The caller holds mu.
func (c *Consul) recordChange(name string) { c.catalogIndex, c.byName[name] = c.index, c.index }

// drop removes a check at the present index. The caller holds mu.
func (c *Consul) drop(k *check) {
	k.stop()
	delete(c.checks, k.CheckID)
	c.recordChange(k.ServiceName)
	c.endSessionsOf(k.CheckID)
}

// checksOf lists the checks of a service. The caller holds mu.
func (c *Consul) checksOf(id string) (list []*check) {
	for _, name := range slices.Sorted(maps.Keys(c.checks)) {
		if c.checks[name].ServiceID == id {
			list = append(list, c.checks[name])
		}
	}
	return list
}

// deregister removes a service and its checks. The caller holds mu.
func (c *Consul) deregister(s *service) {
	c.commit()
	for _, k := range c.checksOf(s.ID) {
		c.drop(k)
	}
	delete(c.services, s.ID)
	c.recordChange(s.Service)
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

// registerService adds a service, or changes it. An existing check keeps its status, and its TTL begins again. A check that
// the request lacks stays.
func (c *Consul) registerService(q call) (any, error) {
	var asked struct {
		serviceView
		Name   string
		Check  *checkDefinition
		Checks []checkDefinition
	}
	if err := q.decode(&asked); err != nil {
		return nil, err
	}
	if asked.Name == "" {
		return nil, refusal{http.StatusBadRequest, "Missing service name"}
	}
	s := &service{serviceView: asked.serviceView, token: q.token}
	s.ID, s.Service, s.Tags = cmp.Or(s.ID, asked.Name), asked.Name, append([]string{}, s.Tags...)
	s.Weights.Passing, s.Weights.Warning = 1, 1
	if asked.Check != nil {
		asked.Checks = append(asked.Checks, *asked.Check)
	}
	c.commit()
	s.created, s.modified = c.index, c.index
	if before := c.services[s.ID]; before != nil {
		s.created = before.created
		if reflect.DeepEqual(before.serviceView, s.serviceView) {
			s.modified = before.modified
		}
	}
	c.services[s.ID] = s
	if s.modified == c.index {
		c.recordChange(s.Service)
	}
	for i, d := range asked.Checks {
		k := &check{token: s.token, checkView: checkView{
			Node: node, CheckID: d.CheckID, Name: cmp.Or(d.Name, fmt.Sprintf("Service '%s' check", s.Service)), Notes: d.Notes, Type: "ttl", Status: cmp.Or(d.Status, critical),
			ServiceID: s.ID, ServiceName: s.Service, ServiceTags: s.Tags,
		}}
		if k.CheckID == "" {
			k.CheckID = "service:" + s.ID
			if len(asked.Checks) > 1 {
				k.CheckID += ":" + strconv.Itoa(i+1)
			}
		}
		k.ttl, _ = time.ParseDuration(d.TTL)
		k.deregisters, _ = time.ParseDuration(d.DeregisterCriticalServiceAfter)
		if k.ttl == 0 {
			return nil, unsupported("checks but those with a TTL")
		}
		if had := c.checks[k.CheckID]; had != nil {
			had.stop()
			k.Status, k.Output, k.reported, k.told = had.Status, had.Output, had.reported, had.told
		}
		c.checks[k.CheckID] = k
		c.run(k)
		c.reapLater(k)
		if k.Status != k.reported.Status || k.Output != k.reported.Output {
			c.record(k) // by the same command as the service
		}
	}
	return nothing{}, nil
}

func (c *Consul) deregisterService(q call) (any, error) {
	if s := c.services[q.what]; s != nil {
		c.deregister(s)
	} else if c.tokens != nil {
		return nil, internal("Unknown service {%q {}}", q.what)
	}
	return nothing{}, nil
}

func (c *Consul) maintainService(q call) (any, error) {
	id := "_service_maintenance:" + q.what
	s, known := c.services[q.what], c.checks[id]
	enable, err := strconv.ParseBool(q.asked.Get("enable"))
	switch {
	case err != nil:
		return nil, refusal{http.StatusBadRequest, "Missing value for enable"}
	case s == nil:
		return nil, refusal{http.StatusNotFound, fmt.Sprintf("No service registered with ID %q", q.what)}
	case enable && known == nil:
		k := &check{token: q.token, checkView: checkView{
			Node: node, CheckID: id, Name: "Service Maintenance Mode", Notes: q.asked.Get("reason"), Type: "maintenance", Status: critical,
			ServiceID: s.ID, ServiceName: s.Service, ServiceTags: s.Tags,
		}}
		c.checks[id] = k
		c.report(k)
	case !enable && known != nil:
		c.commit()
		c.drop(known)
	}
	return nothing{}, nil
}

func (c *Consul) updateCheck(q call) (any, error) {
	var asked struct{ Status, Output string }
	if err := q.decode(&asked); err != nil {
		return nil, err
	}
	if !slices.Contains([]string{passing, "warning", critical}, asked.Status) {
		return nil, refusal{http.StatusBadRequest, fmt.Sprintf("Invalid check status: '%s'", asked.Status)}
	}
	k := c.checks[q.what]
	switch {
	case k == nil && c.tokens != nil:
		return nil, internal("Unknown check %q", q.what)
	case k == nil || k.ttl == 0:
		return nil, internal("CheckID %q does not have associated TTL", q.what)
	}
	k.told = time.Now()
	c.run(k)
	c.set(k, asked.Status, asked.Output)
	return nothing{}, nil
}

func (c *Consul) deregisterCheck(q call) (any, error) {
	if k := c.checks[q.what]; k != nil {
		c.commit()
		c.drop(k)
	} else if c.tokens != nil {
		return nil, internal("Unknown check %q", q.what)
	}
	return nothing{}, nil
}

func (c *Consul) listServices(q call) (any, error) {
	list := map[string]any{}
	for id, s := range c.services {
		fields := map[string]string{"ID": id, "Service": s.Service}
		for key, value := range s.Meta {
			fields["Meta."+key] = value
		}
		if match, err := matches(q.asked.Get("filter"), fields); err != nil {
			return nil, err
		} else if match {
			list[id] = s.serviceView
		}
	}
	return list, nil
}

func (c *Consul) listChecks(q call) (any, error) {
	list := map[string]any{}
	for id, k := range c.checks {
		if match, err := matches(q.asked.Get("filter"), map[string]string{"CheckID": id, "ServiceID": k.ServiceID}); err != nil {
			return nil, err
		} else if match {
			list[id] = k.checkView
		}
	}
	return list, nil
}

// equation is a part of a filter; developer.hashicorp.com/consul/api-docs/features/filtering has more.
var equation = regexp.MustCompile(`^([A-Za-z.]+) == "([^"]*)"$`)

// matches reports whether fields are as a filter says.
func matches(filter string, fields map[string]string) (bool, error) {
	for part := range strings.SplitSeq(filter, " and ") {
		found := equation.FindStringSubmatch(part)
		if found == nil && filter != "" {
			return false, unsupported("such filter")
		}
		if found != nil && fields[found[1]] != found[2] {
			return false, nil
		}
	}
	return true, nil
}

// healthOfService lists the instances of a service with their checks. Its index is that of their last change; without an
// instance, that of the last service that lost all.
func (c *Consul) healthOfService(q call) (uint64, any) {
	type shown struct {
		serviceView
		Proxy                    struct{ MeshGateway, Expose struct{} }
		Connect                  struct{}
		CreateIndex, ModifyIndex uint64
	}
	const address = "127.0.0.1"
	machineView := map[string]any{
		"ID": "fa4e0000-0000-4000-8000-000000000000", "Node": node, "Address": address, "Datacenter": "dc1", "CreateIndex": 5, "ModifyIndex": 7,
		"TaggedAddresses": map[string]string{"lan": address, "lan_ipv4": address, "wan": address, "wan_ipv4": address}, "Meta": map[string]string{"consul-network-segment": ""},
	}
	list := []any{}
	for _, id := range slices.Sorted(maps.Keys(c.services)) {
		s := c.services[id]
		if s.Service != q.what || q.asked.Has("tag") && !slices.Contains(s.Tags, q.asked.Get("tag")) {
			continue
		}
		checks, healthy := []checkView{machine}, true
		for _, k := range c.checksOf(id) {
			checks = append(checks, k.reported)
			healthy = healthy && k.reported.Status == passing
		}
		if healthy || !q.asked.Has("passing") {
			list = append(list, map[string]any{
				"Node": machineView, "Service": shown{serviceView: s.serviceView, CreateIndex: s.created, ModifyIndex: s.modified}, "Checks": checks,
			})
		}
	}
	index, exists := c.byName[q.what]
	if !exists {
		index = cmp.Or(c.extinct, c.catalogIndex)
	}
	return index, list
}
