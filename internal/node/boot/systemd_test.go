package boot

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"testing"

	"github.com/godbus/dbus/v5"

	"github.com/ortet/ortet/internal/node/systemd"
	"github.com/ortet/ortet/internal/wire"
)

// said is an answer of systemd's.
func said(t testing.TB, body any) []byte {
	t.Helper()
	m := &dbus.Message{Type: dbus.TypeMethodReply, Body: []any{body}, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldReplySerial: dbus.MakeVariant(uint32(1)), dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(body))}}
	var b bytes.Buffer
	if err := m.EncodeTo(&b, binary.LittleEndian); err != nil {
		t.Fatal(err)
	}
	raw := b.Bytes()
	binary.LittleEndian.PutUint32(raw[8:], 1)
	return raw
}

func managerSaid(t testing.TB, virtualization string) []byte {
	return said(t, map[string]dbus.Variant{
		"UserspaceTimestampMonotonic": dbus.MakeVariant(uint64(4_000_123)), "UserspaceTimestamp": dbus.MakeVariant(uint64(1_795_268_144_693_998)),
		"KernelTimestamp": dbus.MakeVariant(uint64(1_795_268_140_693_875)), "KernelTimestampMonotonic": dbus.MakeVariant(uint64(0)),
		"FinishTimestampMonotonic": dbus.MakeVariant(uint64(9_000_000)), "FinishTimestamp": dbus.MakeVariant(uint64(0)),
		"SecurityStartTimestampMonotonic": dbus.MakeVariant(^uint64(0)),
		"Virtualization":                  dbus.MakeVariant(virtualization), "Version": dbus.MakeVariant("252"), "Environment": dbus.MakeVariant([]string{"A=1"}),
	})
}

func TestManager(t *testing.T) {
	for virtualization, container := range map[string]bool{"": false, "kvm": false, "microsoft": false, "container-other": true} {
		r, err := systemd.Parse(managerSaid(t, virtualization))
		if err != nil {
			t.Fatal(err)
		}
		m, err := parseManager(&r)
		if want := (wire.SystemTimes{Userspace: 4_000_123, Finish: 9_000_000, Container: container}); err != nil || m.times != want || !m.finished() {
			t.Errorf("%q: %+v, want %+v: %v", virtualization, m.times, want, err)
		}
		if got, want := m.clocks(), []wire.ClockReading{{Monotonic: 4_000_123, Wall: 1_795_268_144_693_998}}; !reflect.DeepEqual(got, want) {
			t.Errorf("clocks %v, want %v", got, want)
		}
	}
}

type listed struct {
	Name, Description, Load, Active, Sub, Following string
	Path                                            dbus.ObjectPath
	Job                                             uint32
	JobType                                         string
	JobPath                                         dbus.ObjectPath
}

func unitsSaid(t testing.TB) []byte {
	return said(t, []listed{{Name: "a.service", Path: "/unit/a", JobPath: "/"}, {Name: "-.mount", Description: "Root", Path: "/unit/root", JobPath: "/"}})
}

func TestUnitsAreListed(t *testing.T) {
	r, err := systemd.Parse(unitsSaid(t))
	if err != nil {
		t.Fatal(err)
	}
	units, err := parseUnits(&r)
	if err != nil || len(units) != 2 || units[1].Name != "-.mount" || units[1].path != "/unit/root" {
		t.Errorf("%+v %v", units, err)
	}
}

// FuzzAnswers reads what systemd may be said to have answered.
func FuzzAnswers(f *testing.F) {
	f.Add(managerSaid(f, "kvm"))
	f.Add(unitsSaid(f))
	f.Add(said(f, dbus.MakeVariant([]string{"a.service"})))
	f.Fuzz(func(t *testing.T, message []byte) {
		r, err := systemd.Parse(message)
		if err != nil {
			return
		}
		one := r
		if m, err := parseManager(&one); err == nil {
			if problem := (wire.BootReport{Version: wire.BootReportVersion, System: m.times}).Validate(); problem != nil {
				t.Error(problem)
			}
		}
		one = r
		_, _ = parseUnits(&one)
		for _, q := range append(append(append(begins(), ofStarted()...), ofConditions()...), ofServices()...) {
			one, u := r, unit{}
			q.take(&u, one.Variant(), &one.Body)
			if u.Activating < 0 || u.Restarts < 0 {
				t.Errorf("%+v", u)
			}
		}
	})
}
