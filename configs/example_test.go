package configs_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/timeoutcenter/toc/configs"
)

// file makes a configuration file.
func file(text string) (path string, remove func()) {
	dir, _ := os.MkdirTemp("", "toc-example-")
	path = filepath.Join(dir, "toc.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		panic(err)
	}
	return path, func() { os.RemoveAll(dir) }
}

// The environment goes over the file, and the file over the defaults.
func ExampleLoad() {
	path, remove := file(`
http: {listen: ":8080"}
queue: {capacity: 500}
`)
	defer remove()
	environ := []string{"TOC_HTTP_LISTEN=:9090"} // os.Environ() in a program

	cfg, err := configs.Load(path, environ)
	fmt.Println(err)
	fmt.Println("from the environment:", cfg.HTTP.Listen)
	fmt.Println("from the file:", cfg.Queue.Capacity)
	fmt.Println("by default:", cfg.Store.Driver)
	// Output:
	// <nil>
	// from the environment: :9090
	// from the file: 500
	// by default: sqlite
}

// All mistakes are reported at once, each with its key and its place.
func ExampleLoad_mistakes() {
	path, remove := file(`
store: {driver: oracle}
queue:
  capcity: 500
biz_types:
  - {id: 1, name: order_close, workers: 0}
`)
	defer remove()

	_, err := configs.Load(path, []string{"TOC_SHUTDOWN_DRAIN=soon"})
	for _, one := range err.(interface{ Unwrap() []error }).Unwrap() {
		var p *configs.Problem
		errors.As(one, &p)
		fmt.Printf("%s: %s (%s)\n", p.Key, p.Text, filepath.Base(p.Source)) // fmt.Println(err) shows the same
	}
	// Output:
	// queue.capcity: unknown key; did you mean queue.capacity? (toc.yaml:4)
	// shutdown.drain: "soon" is not a duration; write 10s, 1m30s, 720h or 0 (TOC_SHUTDOWN_DRAIN)
	// store.driver: "oracle" is unknown; write sqlite or mysql (toc.yaml:2)
	// biz_types[0].workers: 0 is out of range; write 1 to 10000 (toc.yaml:6)
}

// A secret may lie in a file of its own. What is printed does not show it.
func ExampleLoad_secret() {
	path, remove := file("the password of Redis\n")
	defer remove()

	cfg, err := configs.Load("", []string{"TOC_REDIS_PASSWORD_FILE=" + path})
	fmt.Println(err)
	fmt.Println("read:", cfg.Redis.Password)
	fmt.Println("shown:", cfg.Redacted().Redis.Password) // as in fmt.Println(cfg) and in a log
	// Output:
	// <nil>
	// read: the password of Redis
	// shown: ***
}

// A business type in code starts from the defaults: a zero is a zero.
func ExampleDefaultBizType() {
	mail := configs.DefaultBizType()
	mail.ID, mail.Name = 3, "mail"
	mail.MaxRetries = 0 // one run only
	mail.Timeout = 5 * time.Second

	cfg := configs.Default()
	cfg.BizTypes = []configs.BizType{mail}
	cfg = cfg.WithDefaults() // it works out what follows from other settings
	fmt.Println(cfg.BizTypes[0].Processor, cfg.BizTypes[0].Workers, cfg.Validate())
	// Output:
	// log 64 <nil>
}

// What differs between two configurations outside biz_types needs a restart; a change of biz_types does not.
func ExampleDiff() {
	before, after := configs.Default(), configs.Default()
	after.Queue.Capacity = 500
	after.BizTypes[0].Workers = 8

	for _, line := range configs.Diff(before, after) {
		fmt.Println("at the next start:", line)
	}
	for _, line := range configs.DiffBizTypes(before.BizTypes, after.BizTypes) {
		fmt.Println("at once:", line)
	}
	// Output:
	// at the next start: queue.capacity: 20000 -> 500
	// at once: order_close.workers: 64 -> 8
}
