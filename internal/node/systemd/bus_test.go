package systemd_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/ortet/ortet/internal/node/systemd"
)

// stub is a server of one socket that lets everybody in.
type stub struct {
	answer func(member string, m *dbus.Message) *dbus.Message // nil: it is silent
	conns  chan net.Conn
}

func (s *stub) listen(t *testing.T) systemd.Address {
	t.Helper()
	path := filepath.Join(t.TempDir(), "private")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s.conns = make(chan net.Conn, 10)
	var work sync.WaitGroup
	work.Go(func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			work.Go(func() { s.serve(t, c) })
			s.conns <- c
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		work.Wait()
	})
	return systemd.Address{Path: path}
}

func (s *stub) serve(t *testing.T, c net.Conn) {
	defer func() { _ = c.Close() }()
	r := bufio.NewReader(c)
	for line := ""; line != "BEGIN\r\n"; {
		var err error
		if line, err = r.ReadString('\n'); err != nil {
			return
		}
		answer := "REJECTED EXTERNAL\r\n"
		switch {
		case strings.HasPrefix(line, "BEGIN"):
			continue
		case strings.HasPrefix(line, "AUTH EXTERNAL"):
			answer = "OK 0123456789abcdef0123456789abcdef\r\n"
		}
		if _, err := c.Write([]byte(answer)); err != nil {
			return
		}
	}
	for serial := uint32(1); ; serial++ {
		m, err := dbus.DecodeMessage(r)
		if err != nil {
			return
		}
		member, _ := m.Headers[dbus.FieldMember].Value().(string)
		if reply := s.answer(member, m); reply != nil {
			reply.Headers[dbus.FieldReplySerial] = dbus.MakeVariant(m.Serial())
			send(t, c, reply, serial)
		}
	}
}

func send(t *testing.T, c net.Conn, m *dbus.Message, serial uint32) {
	if len(m.Body) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(m.Body...))
	}
	var b bytes.Buffer
	if err := m.EncodeTo(&b, binary.LittleEndian); err != nil {
		t.Error(err)
	}
	binary.LittleEndian.PutUint32(b.Bytes()[8:], serial) // the library leaves it to its connections
	_, _ = c.Write(b.Bytes())                            // the client may be gone
}

func reply(body ...any) *dbus.Message {
	return &dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{}, Body: body}
}

func refusal() *dbus.Message {
	return &dbus.Message{Type: dbus.TypeError, Headers: map[dbus.HeaderField]dbus.Variant{dbus.FieldErrorName: dbus.MakeVariant("a.b.UnknownProperty")}}
}

// A property of another type, or that is not there, leaves the rest to be read.
func TestProperties(t *testing.T) {
	s := &stub{answer: func(member string, m *dbus.Message) *dbus.Message {
		if member != "Get" {
			return reply()
		}
		if v, ok := map[string]any{
			"ActiveState": "active", "NRestarts": uint32(7), "After": []string{"a.target"}, "Result": uint32(1),
			"LoadError": struct{ Name, Message string }{"a.b.C", "no"}, "ConditionResult": true, "ExecMainStatus": int32(-3), "At": uint64(1 << 40),
		}[m.Body[1].(string)]; ok {
			return reply(dbus.MakeVariant(v))
		}
		return refusal()
	}}
	b, err := systemd.Dial(t.Context(), time.Minute, systemd.Address{Path: "/there/is/none"}, s.listen(t))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	active, result, missing, restarts, after, status, at, met := "", "kept", "kept", uint32(0), []string(nil), int32(0), uint64(0), false
	var loadError struct{ Name, Message string }
	var properties []systemd.Property
	for name, to := range map[string]any{"ActiveState": &active, "Result": &result, "Missing": &missing, "NRestarts": &restarts, "After": &after,
		"LoadError": &loadError, "ExecMainStatus": &status, "At": &at, "ConditionResult": &met} {
		properties = append(properties, systemd.Property{Iface: systemd.Unit, Name: name, To: to})
	}
	if err := b.Get(systemd.ObjectPath("a.service"), properties...); err != nil {
		t.Fatal(err)
	}
	if active != "active" || result != "kept" || missing != "kept" || restarts != 7 || len(after) != 1 || loadError.Name != "a.b.C" || status != -3 || at != 1<<40 || !met {
		t.Errorf("%q %q %q %d %v %v %d %d %v", active, result, missing, restarts, after, loadError, status, at, met)
	}
}

// systemd may not answer the first call that arrives on its own socket.
func TestFirstCallIsLost(t *testing.T) {
	var calls atomic.Int32
	s := &stub{answer: func(string, *dbus.Message) *dbus.Message {
		if calls.Add(1) == 1 {
			return nil
		}
		return reply()
	}}
	b, err := systemd.Dial(t.Context(), 2*time.Second, s.listen(t))
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
}

func TestSilentSystemd(t *testing.T) {
	var silent atomic.Bool
	s := &stub{answer: func(string, *dbus.Message) *dbus.Message {
		if silent.Load() {
			return nil
		}
		return reply()
	}}
	address := s.listen(t)
	b, err := systemd.Dial(t.Context(), 2*time.Second, address)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	silent.Store(true)
	state := ""
	if err := b.Get(systemd.Object, systemd.Property{Iface: systemd.Unit, Name: "ActiveState", To: &state}); err == nil {
		t.Error("a call that is not answered succeeds")
	}
	if _, err := systemd.Dial(t.Context(), 200*time.Millisecond, address); err == nil {
		t.Error("a connection that is not answered succeeds")
	}
}

func TestConnectionIsLost(t *testing.T) {
	s := &stub{answer: func(member string, _ *dbus.Message) *dbus.Message {
		if member == "GetUnit" {
			return nil
		}
		return reply()
	}}
	b, err := systemd.Dial(t.Context(), time.Minute, s.listen(t))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Follow([]string{"a.service"}); err != nil {
		t.Fatal(err)
	}
	c := <-s.conns
	changed := func(unit string, restarts uint32) {
		send(t, c, &dbus.Message{Type: dbus.TypeSignal, Body: []any{systemd.Service, map[string]dbus.Variant{"NRestarts": dbus.MakeVariant(restarts)}, []string{}},
			Headers: map[dbus.HeaderField]dbus.Variant{dbus.FieldPath: dbus.MakeVariant(systemd.ObjectPath(unit)),
				dbus.FieldInterface: dbus.MakeVariant(systemd.Properties), dbus.FieldMember: dbus.MakeVariant("PropertiesChanged")}}, 9)
	}
	changed("other.service", 1)
	changed("a.service", 3)
	if got, err := b.Next(); err != nil || got.Path != systemd.ObjectPath("a.service") || got.Restarts != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	failed := make(chan error, 2)
	go func() { _, err := b.Next(); failed <- err }()
	go func() { _, err := b.Loaded("a.service"); failed <- err }()
	_ = c.Close()
	for range 2 {
		if err := <-failed; err == nil {
			t.Error("what waits for a lost connection succeeds")
		}
	}
}
