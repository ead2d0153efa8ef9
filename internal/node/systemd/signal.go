package systemd

import (
	"strings"
	"time"
)

// Signal says that a unit's properties have changed.
type Signal struct {
	Path string // the unit's object
	// Restarts is NRestarts, where that is among what has changed.
	Restarts uint32
}

// Follow has systemd tell of changes of these units, as signals. Over the message
// bus it tells of them alone; on its own socket of all units, of which the others
// are passed over.
func (b *Bus) Follow(units []string) error {
	var calls []Call
	b.followed = make(map[string]bool, len(units))
	for _, name := range units {
		b.followed[ObjectPath(name)] = true
		if b.to != "" {
			calls = append(calls, Call{Path: busObject, Iface: busName, Member: "AddMatch", to: busName, Args: []string{
				"type='signal',sender='" + Name + "',path='" + ObjectPath(name) + "',interface='" + Properties + "',member='" + changedSignal + "'"}})
		}
	}
	if err := b.Each(calls, func(_ int, r *Reply) error { return r.Err }); err != nil {
		return err
	}
	return b.Each([]Call{{Path: Object, Iface: Manager, Member: "Subscribe"}}, func(_ int, r *Reply) error {
		if b.to == "" {
			return nil // its own socket tells unasked
		}
		return r.Err
	})
}

// Next is the next signal; it waits for one until the connection ends.
func (b *Bus) Next() (Signal, error) {
	if err := b.conn.SetDeadline(time.Time{}); err != nil {
		return Signal{}, err
	}
	for len(b.signals) == 0 {
		r, err := b.receive()
		if err != nil {
			return Signal{}, err
		}
		if r.kind == signal {
			b.keep(&r)
		}
	}
	s := b.signals[0]
	b.signals = b.signals[1:]
	return s, nil
}

// keep queues a signal, of a unit one at most: whoever takes it looks at the unit.
func (b *Bus) keep(r *Reply) {
	s, ok := ReadSignal(r)
	if !ok || !b.followed[s.Path] {
		return
	}
	for i := range b.signals {
		if old := &b.signals[i]; old.Path == s.Path {
			old.Restarts = max(old.Restarts, s.Restarts)
			return
		}
	}
	b.signals = append(b.signals, s)
}

// ReadSignal reads a PropertiesChanged of a unit; others are of no use here, and ok
// is false.
func ReadSignal(r *Reply) (s Signal, ok bool) {
	if r.member != changedSignal || !strings.HasPrefix(r.path, Object+"/unit/") {
		return s, false
	}
	s.Path = r.path
	if !strings.HasPrefix(r.Signature, "sa{sv}") {
		return s, true
	}
	r.Body.Text() // the interface
	_ = r.Body.properties(func(name []byte, kind string, d *Decoder) {
		if kind == "u" && string(name) == "NRestarts" {
			s.Restarts = d.U32()
		}
	}) // what of it could be read counts
	return s, true
}

// ObjectPath is the object of a unit: systemd escapes all but letters and digits.
func ObjectPath(unit string) string {
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
	return string(path)
}
