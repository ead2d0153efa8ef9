//go:build linux

package machine

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
)

// A publication is a public address of a computer, and what stops each port's relay.
type publication struct {
	computer string
	ports    map[int]func() error
}

// Publish relays TCP connections to these ports of a public address to the same
// ports of the computer's private address, and closes all others of that public
// address. A public address is a loopback address of the host. Without ports, or
// when the computer is removed, all are closed; a computer that is not booted
// yet may have one.
func (s *Substrate) Publish(public netip.Addr, computer string, ports []int) error {
	if !public.IsLoopback() {
		return fmt.Errorf("publish %s: not a loopback address: set publicAddresses in azsim's spec to a range in 127.0.0.0/8", public)
	}
	s.publishing.Lock()
	defer s.publishing.Unlock()
	var errs error
	p := s.published[public]
	if p == nil || p.computer != computer {
		errs = p.close(nil)
		p = &publication{computer: computer, ports: map[int]func() error{}}
		s.published[public] = p
	}
	errs = errors.Join(errs, p.close(ports))
	for _, port := range ports {
		if p.ports[port] != nil {
			continue
		}
		listener, err := net.Listen("tcp", net.JoinHostPort(public.String(), strconv.Itoa(port)))
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("publish port %d of %s: %w: end what listens on that port of all addresses", port, computer, err))
			continue
		}
		p.ports[port] = startRelay(listener, func() (string, error) {
			private, err := s.Address(computer)
			return net.JoinHostPort(private.String(), strconv.Itoa(port)), err
		})
	}
	if len(ports) == 0 {
		delete(s.published, public)
	}
	return errs
}

// close ends the relays of all ports but those to keep.
func (p *publication) close(keep []int) error {
	if p == nil {
		return nil
	}
	var errs error
	for port, stop := range p.ports {
		if !slices.Contains(keep, port) {
			errs = errors.Join(errs, stop())
			delete(p.ports, port)
		}
	}
	return errs
}

// unpublish closes all public addresses of a computer; "" means of all computers.
func (s *Substrate) unpublish(computer string) error {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	var errs error
	for public, p := range s.published {
		if computer == "" || p.computer == computer {
			errs = errors.Join(errs, p.close(nil))
			delete(s.published, public)
		}
	}
	return errs
}
