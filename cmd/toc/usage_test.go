package main

import "testing"

func TestHelp(t *testing.T) {
	for _, cmd := range rootCommand(nil).Commands() {
		if cmd.GroupID == "client" && cmd.HasFlags() {
			golden(t, "help/"+cmd.Name(), ok(t, cmd.Name(), "--help"))
		}
	}
	golden(t, "help/receive", ok(t, "receive", "--help"))
	golden(t, "help/dead-redrive", ok(t, "dead", "redrive", "--help"))
}
