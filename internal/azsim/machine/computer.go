//go:build linux

package machine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"sync"

	"github.com/ortet/ortet/internal/azsim"
)

// A computer is what the Substrate knows of one instance, running or not.
type computer struct {
	id      string
	n       int    // its number in the subnet
	dir     string // console and the platform's files
	console *console

	// step is held by whatever changes the computer: boot, shutdown, attach.
	step sync.Mutex
	desc azsim.Computer         // as last booted
	luns map[int32]azsim.Volume // data disks, attached now or at the next boot
	run  *run                   // nil unless it runs
}

// A run is one time that a computer runs, from power-on to power-off.
type run struct {
	container string
	pid       int // of the first process, as the host sees it
	closers   []io.Closer
	ready     chan struct{} // closed when the first process says that it started all
	exited    chan struct{} // closed when the container is gone
	status    int           // the container's exit status, once exited
}

func (r *run) running() bool {
	select {
	case <-r.exited:
		return false
	default:
		return true
	}
}

// computer returns the entry for id, making it with the lowest free number.
func (s *Substrate) computer(id string) (*computer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.computers[id]; c != nil {
		return c, nil
	}
	taken := map[int]bool{}
	for _, c := range s.computers {
		taken[c.n] = true
	}
	n := firstMachine
	for taken[n] {
		n++
	}
	if n > lastMachine {
		return nil, fmt.Errorf("computer %s: the subnet %s is full", id, s.fabric.subnet)
	}
	sum := sha256.Sum256([]byte(id))
	dir := filepath.Join(s.dir, "machines", hex.EncodeToString(sum[:6]))
	console, err := openConsole(filepath.Join(dir, "console.log"))
	if err != nil {
		return nil, err
	}
	c := &computer{id: id, n: n, dir: dir, console: console, luns: map[int32]azsim.Volume{}}
	s.computers[id] = c
	return c, nil
}

// known returns the entry for id, or nil.
func (s *Substrate) known(id string) *computer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.computers[id]
}

// Address is the computer's address in the machines' network. It is the same
// until Remove.
func (s *Substrate) Address(id string) (netip.Addr, error) {
	c := s.known(id)
	if c == nil {
		return netip.Addr{}, fmt.Errorf("computer %s: unknown", id)
	}
	return s.fabric.nth(c.n), nil
}

var _ azsim.Addresser = (*Substrate)(nil)

// PrivateAddress implements azsim.Addresser: a computer has an address once it was
// booted, until Remove.
func (s *Substrate) PrivateAddress(id string) (netip.Prefix, bool) {
	c := s.known(id)
	if c == nil {
		return netip.Prefix{}, true
	}
	return netip.PrefixFrom(s.fabric.nth(c.n), s.fabric.subnet.Bits()), true
}

// Console implements azsim.Substrate. An unknown computer wrote nothing.
func (s *Substrate) Console(_ context.Context, id string) ([]byte, error) {
	c := s.known(id)
	if c == nil {
		return nil, nil
	}
	return c.console.tail()
}
