package slots

import (
	"cmp"
	"context"
	"crypto/sha1"
	_ "embed" // the scripts
	"encoding/hex"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/timeoutcenter/toc/internal/wait"
)

// script is one of the files in lua/.
type script struct {
	text, sha string
	replyLen  int // length of the reply; its last element is never empty
	// once: a second run does something else, so the script must not be sent again when only the answer was
	// lost.
	once bool
}

func newScript(text string, answers int, once bool) *script {
	sum := sha1.Sum([]byte(text))
	return &script{text: text, sha: hex.EncodeToString(sum[:]), replyLen: answers, once: once}
}

var (
	//go:embed lua/arm.lua
	armText string
	//go:embed lua/claim.lua
	claimText string
	//go:embed lua/settle.lua
	settleText string
	//go:embed lua/pulse.lua
	pulseText string

	armScript    = newScript(armText, 2, false)
	settleScript = newScript(settleText, 1, false)
	claimScript  = newScript(claimText, 5, true)
)

// perRun is the greatest number of members of a run. Redis does nothing else during a run.
const perRun = 1000

// runs collects the runs of a script that go out in one pipeline.
//
// An argument is a pointer to the value, because a pointer in an interface costs no allocation. Numbers are
// kept in ints for that reason.
type runs struct {
	script *script
	list   []run
	args   []any
	ints   []int64
}

// run is one run of a script on one slot.
type run struct {
	index    int // in the caller's list of requests
	argsFrom int // first argument in runs.args
	args     []any
	done     bool
	isNew    bool // the server did not know the script
	reply    []string
	err      error
}

// newRuns allocates space for a number of slots and members.
func newRuns(script *script, slots, members int) *runs {
	n := slots + members/perRun
	return &runs{
		script: script,
		list:   make([]run, 0, n),
		args:   make([]any, 0, n*maxHead+2*members),
		ints:   make([]int64, 0, n*maxNumbers+members),
	}
}

// The greatest number of a run's arguments besides its members, and of the numbers among them.
const (
	maxHead    = 16
	maxNumbers = 6
)

var (
	evalsha, eval = "evalsha", "eval"
	keyCounts     = [...]string{1: "1", 2: "2", 3: "3", 4: "4"}
)

// begin starts a run. Arguments that are added after it belong to this run.
func (r *runs) begin(index int, keys ...*string) {
	r.list = append(r.list, run{index: index, argsFrom: len(r.args)})
	r.texts(&evalsha, &r.script.sha, &keyCounts[len(keys)])
	r.texts(keys...)
}

func (r *runs) texts(args ...*string) {
	for _, a := range args {
		r.args = append(r.args, a)
	}
}

func (r *runs) number(n int64) {
	r.ints = append(r.ints, n)
	r.args = append(r.args, &r.ints[len(r.ints)-1])
}

func (r *runs) ids(ids []uint64) {
	for i := range ids {
		r.args = append(r.args, &ids[i])
	}
}

// members adds the score and job_id of each member.
func (r *runs) members(members []Member) {
	for i := range members {
		r.number(members[i].score())
		r.args = append(r.args, &members[i].JobID)
	}
}

// While a hash slot moves to another node and only some of the keys have arrived, a script is answered with
// TRYAGAIN. That usually takes milliseconds.
const (
	tryAgainAfter = 5 * time.Millisecond
	tryAgainFor   = 200 * time.Millisecond
)

// exec sends all runs in one pipeline. It repeats only runs that Redis rejected: with the script's text on a
// node that does not know the script, and after a pause where a hash slot is moving.
func (r *runs) exec(ctx context.Context, client redis.UniversalClient) {
	if len(r.list) == 0 {
		return
	}
	to := len(r.args)
	for i := len(r.list) - 1; i >= 0; i-- {
		one := &r.list[i]
		one.args = r.args[one.argsFrom:to:to]
		to = one.argsFrom
	}
	cmds := make([]*redis.StringSliceCmd, len(r.list))
	deadline := time.Now().Add(tryAgainFor)
	for pause := tryAgainAfter; ; pause *= 2 {
		pipe := client.Pipeline()
		for i := range r.list {
			if one := &r.list[i]; !one.done {
				cmds[i] = redis.NewStringSliceCmd(ctx, one.args...)
				_ = pipe.Process(ctx, r.script.send(cmds[i]))
			}
		}
		_, err := pipe.Exec(ctx)
		var unknown, moving bool
		for i := range r.list {
			if one := &r.list[i]; !one.done {
				u, m := r.script.read(one, cmds[i], err)
				unknown, moving = unknown || u, moving || m
			}
		}
		if unknown {
			continue
		}
		if !moving || time.Now().Add(pause).After(deadline) || wait.For(ctx, pause) != nil {
			return
		}
	}
}

// read records how a run's command ended. It reports whether the run was rejected because the script is unknown
// or because its hash slot is moving.
func (sc *script) read(one *run, cmd *redis.StringSliceCmd, pipeErr error) (unknown, moving bool) {
	reply, err := cmd.Result()
	switch {
	// A reply counts with any error: if the context of a cluster client ends while it repeats one
	// command, the client sets that error on all commands.
	case len(reply) == sc.replyLen && reply[sc.replyLen-1] != "":
		one.reply, one.err, one.done = reply, nil, true
		return false, false
	case redis.HasErrorPrefix(err, "NOSCRIPT") && one.args[0] == any(&evalsha):
		one.args[0], one.args[1] = &eval, &sc.text
		one.isNew, unknown = true, true
	case redis.IsTryAgainError(err):
		moving = true
	default:
		one.done = true
	}
	one.err = cmp.Or(err, pipeErr, errNoAnswer)
	return unknown, moving
}

// errNoAnswer would be a fault of the client library.
var errNoAnswer = errors.New("redis gave no answer")

// unrepeatable is a command that the client must send only once. The client would repeat a whole pipeline if
// its connection broke, or if its first command was answered with TRYAGAIN. Then the claims of the other
// commands would be lost.
type unrepeatable struct{ *redis.StringSliceCmd }

func (unrepeatable) NoRetry() bool { return true }

func (sc *script) send(cmd *redis.StringSliceCmd) redis.Cmder {
	if sc.once {
		return unrepeatable{cmd}
	}
	return cmd
}
