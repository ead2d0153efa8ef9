package admission

import (
	"net"
	"net/netip"
	"sync"
)

// leastConnections is what an address may have open in any case.
const leastConnections = 16

// connectionsOf is how many connections one address may have open: as large a part of
// all as of the rate, so that who is let ask as often as all together, since a load
// balancer hides the addresses, may have them all.
func (l Limits) connectionsOf() int {
	part := int(float64(l.Connections) * l.AddressRate / l.Rate)
	return min(max(part, leastConnections), l.Connections)
}

// sharing is a listener that closes at once what an address opens beyond its part:
// otherwise one could hold all connections without ever sending a request.
type sharing struct {
	net.Listener
	most   int
	closed func() // is told of each

	mu   sync.Mutex
	open map[netip.Prefix]int
}

func (l *sharing) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		at, _ := netip.ParseAddrPort(conn.RemoteAddr().String()) // what is none is one
		from := networkOf(at.Addr())
		if l.enter(from) {
			return &shared{Conn: conn, end: sync.OnceFunc(func() { l.leave(from) })}, nil
		}
		l.closed()
		_ = conn.Close() // nothing was said on it
	}
}

func (l *sharing) enter(from netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[from] >= l.most {
		return false
	}
	l.open[from]++
	return true
}

func (l *sharing) leave(from netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[from]--; l.open[from] == 0 {
		delete(l.open, from)
	}
}

// shared is a connection that is counted until it is closed.
type shared struct {
	net.Conn
	end func()
}

func (c *shared) Close() error {
	defer c.end()
	return c.Conn.Close()
}
