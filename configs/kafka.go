package configs

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Values of Kafka settings.
const (
	SASLPlain    = "plain" // sasl.mechanism
	SASLScram256 = "scram-sha-256"
	SASLScram512 = "scram-sha-512"

	LaneFast = "fast" // intake[].lane
	LaneSlow = "slow"

	KeyBizID    = "biz_id" // biz_types[].kafka.key
	KeyJobID    = "job_id"
	KeyDedupKey = "dedup_key"
)

// KafkaClusters are Kafka clusters; a file has them as sections by name.
type KafkaClusters []KafkaCluster

// Find returns a cluster by its name.
func (list KafkaClusters) Find(name string) (c KafkaCluster, ok bool) {
	i := slices.IndexFunc(list, func(c KafkaCluster) bool { return c.Name == name })
	if i < 0 {
		return c, false
	}
	return list[i], true
}

// MarshalYAML implements yaml.Marshaler.
func (list KafkaClusters) MarshalYAML() (any, error) {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, c := range list {
		var value yaml.Node
		if err := value.Encode(c); err != nil {
			return nil, err
		}
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: c.Name}, &value)
	}
	return n, nil
}

// clusters sets the list from a mapping.
func (l *loader) clusters(v reflect.Value, n *yaml.Node, key string) {
	var list KafkaClusters
	for _, e := range l.entries(n, key) {
		c := KafkaCluster{Name: e.key.Value, Brokers: []string{}}
		at := join(key, c.Name)
		l.sources[at] = l.place(e.key)
		l.value(reflect.ValueOf(&c).Elem(), e.value, at)
		list = append(list, c)
	}
	v.Set(reflect.ValueOf(list))
}

var (
	clusterName = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)
	topicName   = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)
)

func (k Kafka) check(ps *problems) {
	for _, c := range k.Clusters {
		at := join("kafka.clusters", c.Name)
		ps.require(clusterName.MatchString(c.Name), at, "%s is not a name; write 1 to 64 of a-z, 0-9, _ -", quote(c.Name))
		ps.require(len(c.Brokers) > 0, at+".brokers", "is missing or empty; write host:port of some brokers")
		for i, broker := range c.Brokers {
			ps.require(isHostPort(broker), fmt.Sprintf("%s.brokers[%d]", at, i), "%s %s; write 127.0.0.1:9092", quote(hideURL(broker)),
				addressFault(broker))
		}
		c.TLS.check(ps, at+".tls")
		s := c.SASL
		ps.oneOf(at+".sasl.mechanism", s.Mechanism, "", SASLPlain, SASLScram256, SASLScram512)
		ps.require(s.Mechanism == "" || s.Username != "", at+".sasl.username", "is empty; write the user's name")
		ps.require(s.Mechanism == "" || s.Password != "", at+".sasl.password",
			"is empty; write the user's password, or the path of its file as %s", at+".sasl.password"+fileSuffix)
		ps.require(s.Mechanism != "" || s.Username == "" && s.Password == "", at+".sasl.mechanism",
			"is empty, and there is a user; write plain, scram-sha-256 or scram-sha-512")
	}
}

func checkIntake(ps *problems, list []Intake, clusters KafkaClusters) {
	names, read := map[string]int{}, map[[3]string]int{}
	for i, n := range list {
		at := fmt.Sprintf("intake[%d].", i)
		ps.require(clusterName.MatchString(n.Name), at+"name", "%s is not a name; write 1 to 64 of a-z, 0-9, _ -", quote(n.Name))
		if other, ok := names[n.Name]; ok {
			ps.add(at+"name", "%s is the name of intake[%d]; write another", quote(n.Name), other)
		}
		names[n.Name] = i
		_, ok := clusters.Find(n.Cluster)
		ps.require(ok, at+"cluster", "%s is not in kafka.clusters; write the name of one of them", quote(n.Cluster))
		ps.require(topicName.MatchString(n.Topic), at+"topic", "%s is not a topic; write 1 to 249 letters, digits or . _ -", quote(n.Topic))
		place := [3]string{n.Cluster, n.Topic, n.Group}
		if other, ok := read[place]; ok {
			ps.add(at+"topic", "%s is read by intake[%d] in the same group; leave one out", quote(n.Topic), other)
		}
		read[place] = i
		ps.require(topicName.MatchString(n.Group), at+"group", "%s is not a group; write 1 to 249 letters, digits or . _ -", quote(n.Group))
		ps.oneOf(at+"lane", n.Lane, LaneFast, LaneSlow)
		within(ps, at+"rate", n.Rate, 0, maxLimit)
		ps.require(n.FailureTopic == "" || topicName.MatchString(n.FailureTopic), at+"failure_topic",
			"%s is not a topic; write 1 to 249 letters, digits or . _ -", quote(n.FailureTopic))
		ps.require(n.FailureTopic == "" || n.FailureTopic != n.Topic, at+"failure_topic", "is the topic itself; write another")
	}
}

// check checks the settings of a business type whose processor is kafka, or may be.
func (k KafkaOut) check(ps *problems, at string, used bool, clusters KafkaClusters) {
	ps.oneOf(at+"key", k.Key, KeyBizID, KeyJobID, KeyDedupKey)
	if !used {
		return
	}
	_, ok := clusters.Find(k.Cluster)
	ps.require(ok, at+"cluster", "%s is not in kafka.clusters; write the name of one of them", quote(k.Cluster))
	ps.require(topicName.MatchString(k.Topic), at+"topic", "%s is not a topic; write 1 to 249 letters, digits or . _ -", quote(k.Topic))
}
