package testrig

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports are taken from below the range that the kernel gives to outgoing connections (32768 and up): a port of that
// range may be someone's client port at the moment a killed server wants it back, and a client that dials it while
// nobody listens may even end up connected to itself.
const (
	firstPort = 15000
	lastPort  = 31999
)

// freePort finds a loopback port that nobody listens on. Somebody else may take it before the caller does, but no test.
func freePort() (int, error) {
	l, err := listenFree()
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// listenFree listens on such a port, and reserves it: a killed server and a cut proxy come back to theirs.
func listenFree() (net.Listener, error) {
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if !reserve(port) {
			continue
		}
		if l, err := net.Listen("tcp", loopback(port)); err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("no free port between %d and %d", firstPort, lastPort)
}

// reserve keeps the tests of all processes off the port and its neighbours, which are its server's other ports, for as long as this
// process lives, whether somebody listens there or not. It takes a name among Linux's abstract sockets, which are as many as network
// namespaces, as ports are.
func reserve(port int) bool {
	l, err := net.Listen("unix", fmt.Sprintf("@toc-testrig-ports-%d", port&^3))
	if err == nil {
		reserved.Store(port, l)
	}
	return err == nil
}

// reserved keeps the listeners by port from being collected, which would close them.
var reserved sync.Map

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
