package boot

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

// bus asks systemd by its own socket, which spares the message bus the work and
// is there before that is; who is not root has to take the bus.
type bus struct {
	conn   net.Conn
	in     *bufio.Reader
	to     string // systemd's name on the bus; "" on its own socket
	serial uint32
	out    []byte
	rest   []byte
}

const (
	systemdSocket = "/run/systemd/private"
	busSocket     = "/run/dbus/system_bus_socket"

	systemdName   = "org.freedesktop.systemd1"
	systemdObject = "/org/freedesktop/systemd1"
	managerIface  = systemdName + ".Manager"
	unitIface     = systemdName + ".Unit"
	serviceIface  = systemdName + ".Service"
	propertyIface = "org.freedesktop.DBus.Properties"
	busName       = "org.freedesktop.DBus"

	busTimeout = 20 * time.Second // for all that is asked together
	// inFlight is how many questions are asked before the answers are read: systemd
	// answers as many without being woken for each, and they fit a socket's buffer.
	inFlight = 32
)

// dialSystemd connects, within busTimeout for the whole conversation.
func dialSystemd(ctx context.Context, own, shared string) (*bus, error) {
	var problems []error
	for _, a := range []struct{ path, to string }{{own, ""}, {shared, systemdName}} {
		b, err := dialBus(ctx, a.path, a.to)
		if err == nil {
			return b, nil
		}
		problems = append(problems, fmt.Errorf("asking systemd by %s: %w", a.path, err))
	}
	return nil, errors.Join(problems...)
}

func dialBus(ctx context.Context, path, to string) (_ *bus, err error) {
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, conn.Close())
		}
	}()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	b := &bus{conn: conn, in: bufio.NewReaderSize(conn, 64<<10), to: to}
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
	if to != "" {
		b.to = busName
		if _, err := b.ask(call{path: "/org/freedesktop/DBus", iface: busName, member: "Hello"}); err != nil {
			return nil, err
		}
		b.to = to
	}
	return b, nil
}

func (b *bus) close() { _ = b.conn.Close() } // it was only asked

// ask is one question. The answer is good until the next.
func (b *bus) ask(c call) (reply, error) {
	var got reply
	err := b.each([]call{c}, func(_ int, r *reply) error {
		got = *r
		return r.err
	})
	return got, err
}

// each asks many questions, and has each answer read, whose number is i.
func (b *bus) each(calls []call, read func(i int, r *reply) error) error {
	for from := 0; from < len(calls); from += inFlight {
		some := calls[from:min(from+inFlight, len(calls))]
		b.out = b.out[:0]
		first := b.serial + 1
		for _, c := range some {
			b.serial++
			b.out = appendCall(b.out, b.serial, b.to, c)
		}
		if _, err := b.conn.Write(b.out); err != nil {
			return err
		}
		for got := 0; got < len(some); {
			r, ok, err := b.receive()
			if err != nil {
				return err
			}
			if i := r.serial - first; ok && r.serial >= first && int(i) < len(some) {
				got++
				if err := read(from+int(i), &r); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (b *bus) receive() (reply, bool, error) {
	var fixed [fixedHeader]byte
	if _, err := io.ReadFull(b.in, fixed[:]); err != nil {
		return reply{}, false, err
	}
	h, err := readHeader(fixed[:])
	if err != nil {
		return reply{}, false, err
	}
	n := h.fields + h.body
	if cap(b.rest) < n {
		b.rest = make([]byte, max(n, 16<<10))
	}
	if _, err := io.ReadFull(b.in, b.rest[:n]); err != nil {
		return reply{}, false, err
	}
	return readReply(h, b.rest[:n])
}
