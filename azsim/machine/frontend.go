//go:build linux

package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
)

// AddFrontend listens in the fabric and passes connections on to the host, until
// Close. Its address may be any that machines need not reach otherwise, so a
// certificate can name it beforehand. A second one at an address is an error.
func (s *Substrate) AddFrontend(f Frontend) error {
	host, port, err := net.SplitHostPort(f.Listen)
	if err != nil {
		return fmt.Errorf("frontend %q: %w", f.Listen, err)
	}
	if host == "" {
		host = s.fabric.gateway().String()
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return fmt.Errorf("frontend %q: %w", f.Listen, err)
	}
	if addr != s.fabric.gateway() {
		if err := ip(context.Background(), s.fabric.namespace(), fmt.Sprintf("addr replace %s/32 dev lo", addr)); err != nil {
			return err
		}
	}
	listener, err := listenIn(s.fabric.namespace(), net.JoinHostPort(host, port))
	if err != nil {
		return fmt.Errorf("frontend %q: %w", f.Listen, err)
	}
	stop := startRelay(listener, func() (string, error) { return f.Target, nil })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closers = append(s.closers, stop)
	return nil
}

func listenIn(namespace, address string) (listener net.Listener, err error) {
	err = within(namespace, func() (err error) {
		listener, err = net.Listen("tcp", address)
		return err
	})
	return listener, err
}

// A relay passes TCP connections on.
type relay struct {
	target func() (string, error) // asked for each connection
	done   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	open   map[net.Conn]bool
}

// startRelay passes on the connections that come to l, until stop.
func startRelay(l net.Listener, target func() (string, error)) (stop func() error) {
	r := relay{target: target}
	r.done.Go(func() { r.serve(l) })
	return func() error {
		err := l.Close()
		r.close()
		return err
	}
}

func (r *relay) serve(l net.Listener) {
	for {
		in, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		r.done.Go(func() { r.pass(in) })
	}
}

// pass connects one connection through. Whatever ends it, both sides see it
// end; there is nobody to tell why.
func (r *relay) pass(in net.Conn) {
	if !r.keep(in) {
		return
	}
	defer r.drop(in)
	target, err := r.target()
	if err != nil {
		return
	}
	out, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	if !r.keep(out) {
		return
	}
	defer r.drop(out)
	var both sync.WaitGroup
	both.Go(func() { stream(out, in) })
	both.Go(func() { stream(in, out) })
	both.Wait()
}

func stream(to, from net.Conn) {
	_, err := io.Copy(to, from)
	half, ok := to.(interface{ CloseWrite() error })
	if err != nil || !ok || half.CloseWrite() != nil {
		_ = to.Close()
		_ = from.Close()
	}
}

func (r *relay) keep(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		_ = c.Close()
		return false
	}
	if r.open == nil {
		r.open = map[net.Conn]bool{}
	}
	r.open[c] = true
	return true
}

func (r *relay) drop(c net.Conn) {
	_ = c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, c)
}

func (r *relay) close() {
	r.mu.Lock()
	r.closed = true
	for c := range r.open {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.done.Wait()
}
