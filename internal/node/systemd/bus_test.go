package systemd_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/ortet/ortet/internal/node/systemd"
	"github.com/ortet/ortet/test/systemdtest"
)

// listen makes a systemd that answers so.
func listen(t *testing.T, answer systemdtest.Answer) (*systemdtest.Server, systemd.Address) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "private")
	return systemdtest.Listen(t, path, answer), systemd.Address{Path: path}
}

// A property of another type, or that is not there, leaves the rest to be read.
func TestProperties(t *testing.T) {
	_, address := listen(t, func(member string, m *dbus.Message) *dbus.Message {
		if member != "Get" {
			return systemdtest.Reply()
		}
		if v, ok := map[string]any{
			"ActiveState": "active", "NRestarts": uint32(7), "After": []string{"a.target"}, "Result": uint32(1),
			"LoadError": struct{ Name, Message string }{"a.b.C", "no"}, "ConditionResult": true, "ExecMainStatus": int32(-3), "At": uint64(1 << 40),
		}[m.Body[1].(string)]; ok {
			return systemdtest.Reply(dbus.MakeVariant(v))
		}
		return systemdtest.Refusal()
	})
	b, err := systemd.Dial(t.Context(), time.Minute, systemd.Address{Path: "/there/is/none"}, address)
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
	_, address := listen(t, func(string, *dbus.Message) *dbus.Message {
		if calls.Add(1) == 1 {
			return nil
		}
		return systemdtest.Reply()
	})
	b, err := systemd.Dial(t.Context(), 2*time.Second, address)
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
}

func TestSilentSystemd(t *testing.T) {
	var silent atomic.Bool
	_, address := listen(t, func(string, *dbus.Message) *dbus.Message {
		if silent.Load() {
			return nil
		}
		return systemdtest.Reply()
	})
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
	s, address := listen(t, func(member string, _ *dbus.Message) *dbus.Message {
		if member == "GetUnit" {
			return nil
		}
		return systemdtest.Reply()
	})
	b, err := systemd.Dial(t.Context(), time.Minute, address)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Follow([]string{"a.service"}); err != nil {
		t.Fatal(err)
	}
	s.Changed("other.service", systemd.Service, map[string]any{"NRestarts": uint32(1)})
	s.Changed("a.service", systemd.Service, map[string]any{"NRestarts": uint32(3)})
	if got, err := b.Next(); err != nil || got.Path != systemd.ObjectPath("a.service") || got.Restarts != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	failed := make(chan error, 2)
	go func() { _, err := b.Next(); failed <- err }()
	go func() { _, err := b.Loaded("a.service"); failed <- err }()
	s.HangUp()
	for range 2 {
		if err := <-failed; err == nil {
			t.Error("what waits for a lost connection succeeds")
		}
	}
}
