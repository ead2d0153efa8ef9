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

	"github.com/ortet/ortet/azsim"
)

// A computer is what the Substrate knows of one instance, running or not.
type computer struct {
	id      string
	dir     string // console and the platform's files
	console *console

	// Its number in the subnet, its address and its host name, from the first boot on. They
	// change under step and Substrate.mu.
	n        int
	address  netip.Prefix
	hostName string

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

// computer returns the entry for id, making it if need be.
func (s *Substrate) computer(id string) (*computer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.computers[id]; c != nil {
		return c, nil
	}
	sum := sha256.Sum256([]byte(id))
	dir := filepath.Join(s.dir, "machines", hex.EncodeToString(sum[:6]))
	console, err := openConsole(filepath.Join(dir, "console.log"))
	if err != nil {
		return nil, err
	}
	c := &computer{id: id, dir: dir, console: console, luns: map[int32]azsim.Volume{}}
	s.computers[id] = c
	return c, nil
}

// place gives c, which does not run, its host name and the number of the address that ARM
// gave, or else the one that it has, or else the lowest free one. c.step is locked.
func (s *Substrate) place(c *computer, desc azsim.Computer) error {
	address := desc.Address
	n, err := machineNumber(s.fabric.subnet, address)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.hostName = desc.HostName
	if n == 0 && c.n != 0 {
		return nil
	}
	taken := map[int]string{}
	for _, other := range s.computers {
		if other != c {
			taken[other.n] = other.id
		}
	}
	if n == 0 {
		n = firstMachine
		for taken[n] != "" {
			n++
		}
		if n > lastMachine {
			return fmt.Errorf("the subnet %s is full", s.fabric.subnet)
		}
		address = netip.PrefixFrom(s.fabric.nth(n), s.fabric.subnet.Bits())
	} else if other := taken[n]; other != "" {
		return fmt.Errorf("address %s belongs to %s: remove that computer first, or let ARM give each computer an address", address.Addr(), other)
	}
	c.n, c.address = n, address
	return nil
}

// known returns the entry for id, or nil.
func (s *Substrate) known(id string) *computer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.computers[id]
}

// Address is the computer's address in the machines' network. It is
// there from the first boot until Remove.
func (s *Substrate) Address(id string) (netip.Addr, error) {
	p, _ := s.PrivateAddress(id)
	if !p.IsValid() {
		return netip.Addr{}, fmt.Errorf("computer %s: has no address before its first boot", id)
	}
	return p.Addr(), nil
}

var _ azsim.Addresser = (*Substrate)(nil)

// PrivateAddress implements azsim.Addresser: a computer has an address once it was
// booted, until Remove.
func (s *Substrate) PrivateAddress(id string) (netip.Prefix, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.computers[id]; c != nil {
		return c.address, true
	}
	return netip.Prefix{}, true
}

// Console implements azsim.Substrate. An unknown computer wrote nothing.
func (s *Substrate) Console(_ context.Context, id string) ([]byte, error) {
	c := s.known(id)
	if c == nil {
		return nil, nil
	}
	return c.console.tail()
}
