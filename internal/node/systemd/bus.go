package systemd

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Names of systemd's on D-Bus.
const (
	Name          = "org.freedesktop.systemd1"
	Object        = "/org/freedesktop/systemd1"
	Manager       = Name + ".Manager"
	Unit          = Name + ".Unit"
	Service       = Name + ".Service"
	Properties    = busName + ".Properties"
	OwnSocket     = "/run/systemd/private" // for root alone
	SharedSocket  = "/run/dbus/system_bus_socket"
	busName       = "org.freedesktop.DBus"
	busObject     = "/org/freedesktop/DBus"
	changedSignal = "PropertiesChanged"
)

// inFlight is how many questions are asked before the answers are read: systemd
// answers as many without being woken for each, and they fit a socket's buffer.
const inFlight = 32

// Address is a socket; Shared says that it is a message bus's, not systemd's own.
type Address struct {
	Path   string
	Shared bool
}

// Bus is a connection. It is used by one goroutine at a time, but that any may
// close it.
type Bus struct {
	conn     net.Conn
	in       *bufio.Reader
	followed map[string]bool // objects
	to       string          // systemd's name on the bus; "" on its own socket
	within   time.Duration
	serial   uint32
	out      []byte
	rest     []byte
	signals  []Signal
}

// Dial connects to the first address that lets us. Each question, or the questions
// that are asked together, and the greeting have to be answered within that time.
func Dial(ctx context.Context, within time.Duration, addresses ...Address) (*Bus, error) {
	var problems []error
	for _, a := range addresses {
		b, err := dial(ctx, within, a)
		if err == nil {
			return b, nil
		}
		problems = append(problems, fmt.Errorf("asking systemd by %s: %w", a.Path, err))
	}
	return nil, errors.Join(problems...)
}

func dial(ctx context.Context, within time.Duration, a Address) (_ *Bus, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", a.Path)
	if err != nil {
		return nil, err
	}
	// Who ends ctx waits for no greeting.
	hangUp := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer func() {
		hangUp()
		if err != nil {
			_ = conn.Close() // it may be closed already
		}
	}()
	b := &Bus{conn: conn, in: bufio.NewReaderSize(conn, 16<<10), within: within}
	// EXTERNAL: the kernel tells the other side who we are. All is written at once:
	// systemd does not look again at a question that comes together with BEGIN.
	if _, err := fmt.Fprintf(conn, "\x00AUTH EXTERNAL %s\r\nBEGIN\r\n", hex.EncodeToString([]byte(strconv.Itoa(os.Getuid())))); err != nil {
		return nil, err
	}
	line, err := b.in.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(string(line), "OK ") {
		return nil, fmt.Errorf("it does not let us in: %q", line)
	}
	if a.Shared {
		b.to = Name
		if _, err := b.Ask(Call{Path: busObject, Iface: busName, Member: "Hello", to: busName}); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// Close ends the connection, and whatever waits for it.
func (b *Bus) Close() { _ = b.conn.Close() } // it was only asked

// Ask is one question. An answer that is an error is one.
func (b *Bus) Ask(c Call) (Reply, error) {
	var got Reply
	err := b.Each([]Call{c}, func(_ int, r *Reply) error {
		got = *r
		return r.Err
	})
	return got, err
}

// Each asks many questions, and has each answer read, whose number is i. It ends
// with the first error of read.
func (b *Bus) Each(calls []Call, read func(i int, r *Reply) error) error {
	if err := b.conn.SetDeadline(time.Now().Add(b.within)); err != nil {
		return err
	}
	for from := 0; from < len(calls); from += inFlight {
		some := calls[from:min(from+inFlight, len(calls))]
		b.out = b.out[:0]
		first := b.serial + 1
		for _, c := range some {
			b.serial++
			to := c.to
			if to == "" {
				to = b.to
			}
			b.out = appendCall(b.out, b.serial, to, c)
		}
		if _, err := b.conn.Write(b.out); err != nil {
			return err
		}
		for got := 0; got < len(some); {
			r, err := b.receive()
			if err != nil {
				return err
			}
			if r.kind == signal {
				b.keep(&r)
			}
			if i := r.serial - first; (r.kind == methodReturn || r.kind == methodError) && r.serial >= first && int(i) < len(some) {
				got++
				if err := read(from+int(i), &r); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (b *Bus) receive() (Reply, error) {
	var fixed [fixedHeader]byte
	if _, err := io.ReadFull(b.in, fixed[:]); err != nil {
		return Reply{}, err
	}
	h, err := readHeader(fixed[:])
	if err != nil {
		return Reply{}, err
	}
	n := h.fields + h.body
	if cap(b.rest) < n {
		b.rest = make([]byte, max(n, 4<<10))
	}
	if _, err := io.ReadFull(b.in, b.rest[:n]); err != nil {
		return Reply{}, err
	}
	return readMessage(h, b.rest[:n])
}
