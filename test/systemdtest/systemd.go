// Package systemdtest is systemd's private socket: it lets everybody in, and answers calls
// of D-Bus as a test says.
package systemdtest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/godbus/dbus/v5"

	"github.com/ortet/ortet/internal/node/systemd"
)

// Answer is the reply to a call; nil is silence.
type Answer func(member string, call *dbus.Message) *dbus.Message

// Server listens until the test ends.
type Server struct {
	t      *testing.T
	answer Answer

	mu     sync.Mutex
	conns  []net.Conn
	serial uint32
}

// Listen makes one at the path of a socket.
func Listen(t *testing.T, path string, answer Answer) *Server {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, answer: answer}
	var work sync.WaitGroup
	work.Go(func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			s.mu.Lock()
			s.conns = append(s.conns, c)
			s.mu.Unlock()
			work.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		s.HangUp()
		work.Wait()
	})
	return s
}

// HangUp closes all connections.
func (s *Server) HangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.conns = nil
}

// Changed signals to all connections that a unit has these properties now.
func (s *Server) Changed(unit, iface string, properties map[string]any) {
	values := map[string]dbus.Variant{}
	for k, v := range properties {
		values[k] = dbus.MakeVariant(v)
	}
	s.mu.Lock()
	conns := append([]net.Conn(nil), s.conns...)
	s.mu.Unlock()
	for _, c := range conns {
		s.send(c, &dbus.Message{Type: dbus.TypeSignal, Body: []any{iface, values, []string{}}, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath: dbus.MakeVariant(systemd.ObjectPath(unit)), dbus.FieldInterface: dbus.MakeVariant(systemd.Properties),
			dbus.FieldMember: dbus.MakeVariant("PropertiesChanged")}})
	}
}

// Reply grants a call.
func Reply(body ...any) *dbus.Message {
	return &dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{}, Body: body}
}

// Refusal is the error of a property that does not exist.
func Refusal() *dbus.Message {
	return &dbus.Message{Type: dbus.TypeError, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldErrorName: dbus.MakeVariant("org.freedesktop.DBus.Error.UnknownProperty")}}
}

func (s *Server) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	r := bufio.NewReader(c)
	if b, err := r.ReadByte(); err != nil || b != 0 {
		s.t.Logf("no leading zero: %d, %v", b, err)
		return
	}
	for line := ""; line != "BEGIN\r\n"; {
		var err error
		if line, err = r.ReadString('\n'); err != nil {
			return
		}
		answer := "ERROR\r\n"
		switch {
		case strings.HasPrefix(line, "BEGIN"):
			continue
		case strings.HasPrefix(line, "AUTH EXTERNAL"):
			answer = "OK 0123456789abcdef0123456789abcdef\r\n"
		case strings.HasPrefix(line, "AUTH"):
			answer = "REJECTED EXTERNAL\r\n"
		}
		if _, err := c.Write([]byte(answer)); err != nil {
			return
		}
	}
	for {
		m, err := dbus.DecodeMessage(r)
		if err != nil {
			return
		}
		member, _ := m.Headers[dbus.FieldMember].Value().(string)
		if reply := s.answer(member, m); reply != nil {
			reply.Headers[dbus.FieldReplySerial] = dbus.MakeVariant(m.Serial())
			s.send(c, reply)
		}
	}
}

func (s *Server) send(c net.Conn, m *dbus.Message) {
	if len(m.Body) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(m.Body...))
	}
	var b bytes.Buffer
	if err := m.EncodeTo(&b, binary.LittleEndian); err != nil {
		s.t.Error(err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serial++
	binary.LittleEndian.PutUint32(b.Bytes()[8:], s.serial) // the library leaves it to its connections
	_, _ = c.Write(b.Bytes())                              // the client may be gone
}
