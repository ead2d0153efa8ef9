package systemd

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/godbus/dbus/v5"
)

const changedSignal = "PropertiesChanged"

// Signal says that a unit's properties have changed.
type Signal struct {
	Path dbus.ObjectPath // the unit's object
	// Restarts is NRestarts, where that is among what has changed.
	Restarts uint32
}

// Follow has systemd send signals of changes of these units. Its own socket sends
// those of all units, of which the others are passed over.
func (b *Bus) Follow(units []string) error {
	var paths []dbus.ObjectPath
	for _, name := range units {
		paths = append(paths, ObjectPath(name))
	}
	b.changes.follow(paths)
	if !b.shared {
		_ = b.call("Subscribe", nil) // its own socket sends them unasked
		return b.conn.Context().Err()
	}
	ctx, cancel := context.WithTimeout(b.conn.Context(), b.within)
	defer cancel()
	for _, path := range paths {
		if err := b.conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(Name), dbus.WithMatchObjectPath(path),
			dbus.WithMatchInterface(Properties), dbus.WithMatchMember(changedSignal)); err != nil {
			return err
		}
	}
	return b.call("Subscribe", nil)
}

// Next is the next signal; it waits for one until the connection ends.
func (b *Bus) Next() (Signal, error) {
	for {
		if s, ok := b.changes.next(); ok {
			return s, nil
		}
		select {
		case <-b.changes.came:
		case <-b.conn.Context().Done():
			return Signal{}, errors.New("the connection was closed")
		}
	}
}

// changes queues signals, one of each unit at most: whoever takes it reads the unit.
type changes struct {
	came chan struct{}

	mu       sync.Mutex
	followed map[dbus.ObjectPath]bool
	queue    []Signal
}

func newChanges() *changes { return &changes{came: make(chan struct{}, 1)} }

func (c *changes) follow(paths []dbus.ObjectPath) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.followed = make(map[dbus.ObjectPath]bool, len(paths))
	for _, p := range paths {
		c.followed[p] = true
	}
}

func (c *changes) next() (s Signal, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		return s, false
	}
	s, c.queue = c.queue[0], c.queue[1:]
	return s, true
}

// DeliverSignal is dbus.SignalHandler.
func (c *changes) DeliverSignal(_, _ string, signal *dbus.Signal) {
	s, ok := ReadSignal(signal)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !ok || !c.followed[s.Path] {
		return
	}
	for i := range c.queue {
		if old := &c.queue[i]; old.Path == s.Path {
			old.Restarts = max(old.Restarts, s.Restarts)
			return
		}
	}
	c.queue = append(c.queue, s)
	select {
	case c.came <- struct{}{}:
	default:
	}
}

// ReadSignal reads a PropertiesChanged of a unit; ok is false for others.
func ReadSignal(signal *dbus.Signal) (s Signal, ok bool) {
	if signal.Name != Properties+"."+changedSignal || !strings.HasPrefix(string(signal.Path), Object+"/unit/") {
		return s, false
	}
	s.Path = signal.Path
	if len(signal.Body) > 1 {
		changed, _ := signal.Body[1].(map[string]dbus.Variant)
		s.Restarts, _ = changed["NRestarts"].Value().(uint32)
	}
	return s, true
}

// ObjectPath is the object of a unit: systemd escapes all but letters and digits.
func ObjectPath(unit string) dbus.ObjectPath {
	const hex = "0123456789abcdef"
	path := []byte(Object + "/unit/")
	for i := range len(unit) {
		c := unit[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || i > 0 && c >= '0' && c <= '9' {
			path = append(path, c)
		} else {
			path = append(path, '_', hex[c>>4], hex[c&15])
		}
	}
	return dbus.ObjectPath(path)
}
