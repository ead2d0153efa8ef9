package admission

import (
	"net"
	"net/netip"
)

// leastConnections is what an address may have open in any case.
const leastConnections = 16

// sharing is a listener that closes at once what an address opens beyond its part:
// otherwise one could hold all connections without ever sending a request.
type sharing struct {
	net.Listener
	open   *few[netip.Prefix]
	closed func() // is told of each
}

func (l *sharing) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		at, _ := netip.ParseAddrPort(conn.RemoteAddr().String()) // what is none is one
		if end, ok := l.open.begin(networkOf(at.Addr())); ok {
			return &shared{Conn: conn, end: end}, nil
		}
		l.closed()
		_ = conn.Close() // nothing was said on it
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
