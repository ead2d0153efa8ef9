// Package systemd is the agent's client of systemd on D-Bus: over systemd's own
// socket, or over the message bus. Every call ends within a limit of time, and ends
// with an error when the connection is lost.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"strconv"
	"time"

	"github.com/godbus/dbus/v5"
)

// Names of systemd on D-Bus, and its sockets.
const (
	Name         = "org.freedesktop.systemd1"
	Object       = "/org/freedesktop/systemd1"
	Manager      = Name + ".Manager"
	Unit         = Name + ".Unit"
	Service      = Name + ".Service"
	Properties   = "org.freedesktop.DBus.Properties"
	OwnSocket    = "/run/systemd/private" // for root alone
	SharedSocket = "/run/dbus/system_bus_socket"
)

// Address is a socket; Shared says that it is a message bus's, not systemd's own.
type Address struct {
	Path   string
	Shared bool
}

// Bus is a connection. Its methods are safe for use by several goroutines, but
// Follow, which is called once.
type Bus struct {
	conn    *dbus.Conn
	shared  bool
	within  time.Duration
	changes *changes
}

// Dial connects to the first address that accepts us. within limits the time of the
// connection's set-up, and of every call.
func Dial(ctx context.Context, within time.Duration, addresses ...Address) (*Bus, error) {
	var problems []error
	for _, a := range addresses {
		b, err := dial(ctx, within, a)
		if err == nil {
			return b, nil
		}
		problems = append(problems, fmt.Errorf("connect to systemd by %s: %w", a.Path, err))
	}
	return nil, errors.Join(problems...)
}

func dial(ctx context.Context, within time.Duration, a Address) (_ *Bus, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	socket, err := new(net.Dialer).DialContext(ctx, "unix", a.Path)
	if err != nil {
		return nil, err
	}
	b := &Bus{shared: a.Shared, within: within, changes: newChanges()}
	if b.conn, err = dbus.NewConn(socket, dbus.WithSignalHandler(b.changes)); err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	// The library waits for the greeting without a limit.
	hangUp := context.AfterFunc(ctx, b.Close)
	defer func() {
		if !hangUp() {
			err = ctx.Err() // whatever the closed connection says
		}
		if err != nil {
			b.Close()
		}
	}()
	if err := b.conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Getuid()))}); err != nil {
		return nil, fmt.Errorf("log in: %w", err)
	}
	if a.Shared {
		return b, b.conn.Hello()
	}
	return b, b.greet(ctx)
}

// greet calls until it is answered: systemd does not read a call that arrives on its
// own socket together with the end of the log-in, until another one arrives. Nine of
// ten do (systemd 252).
func (b *Bus) greet(ctx context.Context) error {
	for patience := 2 * time.Millisecond; ; patience *= 2 {
		once, cancel := context.WithTimeout(ctx, patience)
		err := b.conn.Object(Name, Object).CallWithContext(once, "org.freedesktop.DBus.Peer.Ping", 0).Err
		cancel()
		var answer dbus.Error
		switch {
		case err == nil || errors.As(err, &answer):
			return nil
		case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
			return err
		}
	}
}

// Close ends the connection, and whatever waits for it.
func (b *Bus) Close() { _ = b.conn.Close() } // nothing was written that could be lost

// call calls a method of the manager and stores its answer's values.
func (b *Bus) call(method string, args []any, to ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), b.within)
	defer cancel()
	return b.conn.Object(Name, Object).CallWithContext(ctx, Manager+"."+method, 0, args...).Store(to...)
}

// Load returns the object of a unit, which systemd loads from disk where it does not
// know it.
func (b *Bus) Load(unit string) (path dbus.ObjectPath, err error) {
	return path, b.call("LoadUnit", []any{unit}, &path)
}

// Loaded returns the object of a unit that systemd knows.
func (b *Bus) Loaded(unit string) (path dbus.ObjectPath, err error) {
	return path, b.call("GetUnit", []any{unit}, &path)
}

// UnitsIn returns the names of the units that are in one of these states.
func (b *Bus) UnitsIn(states ...string) (names []string, err error) {
	var units []struct {
		Name, Description, Load, Active, Sub, Following string
		Path                                            dbus.ObjectPath
		Job                                             uint32
		JobType                                         string
		JobPath                                         dbus.ObjectPath
	}
	err = b.call("ListUnitsFiltered", []any{states}, &units)
	for _, u := range units {
		names = append(names, u.Name)
	}
	return names, err
}

// Property is one to be read: its interface and name, and a pointer to its value.
type Property struct {
	Iface, Name string
	To          any
}

// Get reads an object's properties, all within the limit of one call. What this
// version of systemd or this kind of unit does not have, or has as another type, is
// left as it is; the error is the connection's.
func (b *Bus) Get(path dbus.ObjectPath, properties ...Property) error {
	ctx, cancel := context.WithTimeout(context.Background(), b.within)
	defer cancel()
	object := b.conn.Object(Name, path)
	calls := make([]*dbus.Call, len(properties))
	for i, p := range properties {
		calls[i] = object.GoWithContext(ctx, Properties+".Get", 0, make(chan *dbus.Call, 1), p.Iface, p.Name)
	}
	for i, call := range calls {
		var v dbus.Variant
		var answer dbus.Error
		switch err := (<-call.Done).Store(&v); {
		case err == nil:
			// Store alone would make text of a number.
			if to := properties[i].To; v.Signature() == dbus.SignatureOfType(reflect.TypeOf(to).Elem()) {
				_ = dbus.Store([]any{v.Value()}, to) // it has that type
			}
		case !errors.As(err, &answer):
			return err
		}
	}
	return nil
}
