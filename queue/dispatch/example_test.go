package dispatch_test

import (
	"fmt"
	"time"

	"github.com/timeoutcenter/toc/queue/dispatch"
)

// Where a task waits depends on its engine, its time and the owner of its partition.
func ExampleFacts_Where() {
	until := time.Now().Add(10 * time.Second) // how far ahead the engine reads
	near, far := until.Add(-time.Second), until.Add(time.Second)
	fmt.Println("engine  due     ours   another's")
	for _, row := range []struct {
		name   string
		engine dispatch.EngineKind
	}{{"none", dispatch.NoEngine}, {"scan", dispatch.Scan}, {"redis", dispatch.Redis}} {
		ours := dispatch.Facts{Engine: row.engine, Until: until, Owned: true}
		others := dispatch.Facts{Engine: row.engine, Until: until}
		fmt.Printf("%-7s near    %-6v %v\n", row.name, ours.Where(near), others.Where(near))
		fmt.Printf("%-7s far     %-6v %v\n", row.name, ours.Where(far), others.Where(far))
	}
	// Output:
	// engine  due     ours   another's
	// none    near    store  store
	// none    far     store  store
	// scan    near    queue  owner
	// scan    far     store  store
	// redis   near    slot   slot
	// redis   far     store  store
}
