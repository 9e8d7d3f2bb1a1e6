package configs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const kafkaType = `
biz_types:
  - {id: 1, name: order_close, kafka: {cluster: main, topic: order-timeouts}}
`

func TestKafka(t *testing.T) {
	dir := t.TempDir()
	password := filepath.Join(dir, "password")
	require.NoError(t, os.WriteFile(password, []byte("a secret\n"), 0o600))
	load := func(kafka string) (Config, error) {
		path := filepath.Join(dir, "toc.yaml")
		require.NoError(t, os.WriteFile(path, []byte(kafka+kafkaType), 0o600))
		return Load(path, nil)
	}
	c, err := load(`
kafka:
  clusters:
    main: {brokers: [10.0.0.5:9092, 10.0.0.6:9092], tls: {ca: system, server_name: kafka}, sasl: {mechanism: scram-sha-256, username: toc, password_file: ` + password + `}}
    other: {brokers: [10.0.0.7:9092]}
`)
	require.NoError(t, err)
	require.Equal(t, KafkaClusters{
		{Name: "main", Brokers: []string{"10.0.0.5:9092", "10.0.0.6:9092"}, TLS: TLS{CA: "system", ServerName: "kafka"},
			SASL: SASL{Mechanism: SASLScram256, Username: "toc", Password: "a secret"}},
		{Name: "other", Brokers: []string{"10.0.0.7:9092"}},
	}, c.Kafka.Clusters)
	require.Equal(t, ProcessorKafka, c.BizTypes[0].Processor)
	require.Equal(t, KafkaOut{Cluster: "main", Topic: "order-timeouts", Key: KeyBizID}, c.BizTypes[0].Kafka)
	require.NotContains(t, c.String(), "a secret")
	require.Contains(t, c.String(), "main:\n            brokers:")

	again, err := load("kafka: {clusters: {main: {brokers: [10.0.0.5:9092]}}}")
	require.NoError(t, err)
	require.Equal(t, []string{"kafka.clusters: changed"}, Diff(c, again))

	for kafka, says := range map[string]string{
		"":                              `biz_types[0].kafka.cluster: "main" is not in kafka.clusters; write the name of one of them`,
		"kafka: {clusters: {main: {}}}": "kafka.clusters.main.brokers: is missing or empty; write host:port of some brokers",
		"kafka: {clusters: [main]}":     "kafka.clusters: is not a section; write one section for each cluster, by its name",
		"kafka: {clusters: {main: x}}":  "kafka.clusters.main: is not a section",
		"kafka: {clusters: {main: {broker: [a]}}}":                                                                   "kafka.clusters.main.broker: unknown key; did you mean kafka.clusters.main.brokers?",
		"kafka: {clusters: {main: {brokers: [a]}}}":                                                                  "kafka.clusters.main.brokers[0]: ",
		"kafka: {clusters: {MAIN: {brokers: [\"a:1\"]}}}":                                                            "kafka.clusters.MAIN: ",
		"kafka: {clusters: {main: {brokers: [\"a:1\"], tls: {ca: /nosuch}}}}":                                        "kafka.clusters.main.tls.ca: cannot be read: ",
		"kafka: {clusters: {main: {brokers: [\"a:1\"], tls: {cert: x}}}}":                                            "kafka.clusters.main.tls.ca: is empty, so there is no TLS",
		"kafka: {clusters: {main: {brokers: [\"a:1\"], tls: {ca: " + password + "}}}}":                               "has no certificate in PEM form",
		"kafka: {clusters: {main: {brokers: [\"a:1\"], sasl: {mechanism: gssapi, username: u, password: p}}}}":       `kafka.clusters.main.sasl.mechanism: "gssapi" is unknown; write plain, scram-sha-256 or scram-sha-512`,
		"kafka: {clusters: {main: {brokers: [\"a:1\"], sasl: {username: u}}}}":                                       "kafka.clusters.main.sasl.mechanism: is empty, and there is a user",
		"kafka: {clusters: {main: {brokers: [\"a:1\"], sasl: {mechanism: plain, username: u}}}}":                     "kafka.clusters.main.sasl.password: is empty",
		"kafka: {clusters: {main: {brokers: [\"a:1\"], sasl: {mechanism: plain, username: u, password: \"${P}\"}}}}": "kafka.clusters.main.sasl.password: is a placeholder",
		"kafka: {clusters: {main: {brokers: [\"a:1\"]}, main: {brokers: [\"a:1\"]}}}":                                "kafka.clusters.main: is given twice",
	} {
		_, err := load(kafka)
		require.ErrorContains(t, err, says, kafka)
	}
}

func TestIntake(t *testing.T) {
	load := func(intake string) (Config, error) {
		path := filepath.Join(t.TempDir(), "toc.yaml")
		require.NoError(t, os.WriteFile(path, []byte("kafka: {clusters: {main: {brokers: [10.0.0.5:9092]}}}\nintake:\n"+intake), 0o600))
		return Load(path, nil)
	}
	c, err := load("  - {name: orders, cluster: main, topic: timers, lane: slow, rate: 500, failure_topic: refused}\n  - {name: b, cluster: main, topic: b}\n")
	require.NoError(t, err)
	require.Equal(t, []Intake{
		{Name: "orders", Cluster: "main", Topic: "timers", Group: "toc", Lane: LaneSlow, Rate: 500, FailureTopic: "refused"},
		{Name: "b", Cluster: "main", Topic: "b", Group: "toc", Lane: LaneFast},
	}, c.Intake)
	other := c
	other.Intake = nil
	require.Equal(t, []string{"intake: changed"}, Diff(c, other))

	for intake, says := range map[string]string{
		"  - {cluster: main, topic: t}":                                                  "intake[0].name: ",
		"  - {name: a, cluster: other, topic: t}":                                        `intake[0].cluster: "other" is not in kafka.clusters`,
		"  - {name: a, cluster: main}":                                                   "intake[0].topic: ",
		"  - {name: a, cluster: main, topic: t, lane: quick}":                            "intake[0].lane: ",
		"  - {name: a, cluster: main, topic: t, rate: -1}":                               "intake[0].rate: ",
		"  - {name: a, cluster: main, topic: t, failure_topic: t}":                       "intake[0].failure_topic: is the topic itself",
		"  - {name: a, cluster: main, topic: t, failure_topc: t}":                        "intake[0].failure_topc: unknown key; did you mean intake[0].failure_topic?",
		"  - {name: a, cluster: main, topic: t}\n  - {name: a, cluster: main, topic: u}": "intake[1].name: ",
		"  - {name: a, cluster: main, topic: t}\n  - {name: b, cluster: main, topic: t}": "intake[1].topic: ",
		"  - {name: a, cluster: main, topic: t}\nstore: {slow_after: 1ms}":               "store.slow_after: ",
		"  main: {name: a}": "intake: is not a list of sections",
	} {
		_, err := load(intake + "\n")
		require.ErrorContains(t, err, says, intake)
	}
}
