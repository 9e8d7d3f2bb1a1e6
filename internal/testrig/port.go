package testrig

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are taken from below the range that the kernel gives to outgoing connections (32768 and up): a port of that
// range may be someone's client port at the moment a killed server wants it back, and a client that dials it while
// nobody listens may even end up connected to itself.
const (
	firstPort = 15000
	lastPort  = 31999
)

// freePort finds a loopback port that nobody listens on. Somebody else may take it before the caller does.
func freePort() (int, error) {
	l, err := listenFree()
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// listenFree listens on such a port.
func listenFree() (net.Listener, error) {
	for range 100 {
		if l, err := net.Listen("tcp", loopback(firstPort+rand.IntN(lastPort-firstPort+1))); err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("no free port between %d and %d", firstPort, lastPort)
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
