package admission

import (
	"net"
	"net/netip"
	"time"

	"golang.org/x/time/rate"
)

// leastConnections is what an address may have open in any case, and leastScarce where
// half of all are taken.
const leastConnections, leastScarce = 16, 4

// sharing is a listener that closes at once what an address opens beyond its part:
// otherwise one could hold all connections without ever sending a request, or have us
// shake hands, which costs more than most requests, as often as it likes.
type sharing struct {
	net.Listener
	open           *few[netip.Prefix]
	scarce, modest int
	often          *each[netip.Prefix]
	now            func() time.Time
	closed         func() // called for each
}

func newSharing(l net.Listener, limits Limits, now func() time.Time, closed func()) *sharing {
	most := limits.partOf(limits.Connections, leastConnections)
	return &sharing{
		Listener: l, open: newFew[netip.Prefix](most), scarce: limits.Connections / 2, modest: limits.partOf(most, leastScarce),
		often: newEach[netip.Prefix](rate.Limit(limits.AddressRate), limits.AddressBurst, maxAddresses), now: now, closed: closed,
	}
}

func (l *sharing) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		at, _ := netip.ParseAddrPort(conn.RemoteAddr().String()) // what is none is one
		address := networkOf(at.Addr())
		if l.often.take(address, l.now()) {
			if end, ok := l.open.beginOf(address, l.scarce, l.modest); ok {
				return &shared{Conn: conn, end: end}, nil
			}
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
