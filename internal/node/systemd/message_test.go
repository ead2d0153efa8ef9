package systemd

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
)

// encoded is a message as another implementation writes it.
func encoded(t testing.TB, kind dbus.Type, order binary.ByteOrder, headers map[dbus.HeaderField]any, body ...any) []byte {
	t.Helper()
	m := &dbus.Message{Type: kind, Headers: map[dbus.HeaderField]dbus.Variant{}, Body: body}
	for k, v := range headers {
		m.Headers[k] = dbus.MakeVariant(v)
	}
	if len(body) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
	}
	var b bytes.Buffer
	if err := m.EncodeTo(&b, order); err != nil {
		t.Fatal(err)
	}
	raw := b.Bytes()
	order.PutUint32(raw[8:], 1) // the library gives none here
	return raw
}

type odd struct {
	A string
	B []struct {
		C byte
		D map[string]dbus.Variant
	}
	E float64
}

func properties() map[string]dbus.Variant {
	return map[string]dbus.Variant{
		"Names": dbus.MakeVariant([]string{"a.service", "b.service"}), "NRestarts": dbus.MakeVariant(uint32(7)),
		"Odd": dbus.MakeVariant(odd{A: "x", E: 1.5}), "Nested": dbus.MakeVariant(dbus.MakeVariant([]odd{{A: "y"}})),
		"At": dbus.MakeVariant(uint64(47436840222)), "Path": dbus.MakeVariant(dbus.ObjectPath("/a")), "Flag": dbus.MakeVariant(true),
		"Short": dbus.MakeVariant(int16(-3)), "Type": dbus.MakeVariant(dbus.SignatureOf(odd{})),
	}
}

func TestPropertiesAreReadAndOthersPassedOver(t *testing.T) {
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		r, err := Parse(encoded(t, dbus.TypeMethodReply, order, map[dbus.HeaderField]any{dbus.FieldReplySerial: uint32(9), dbus.FieldSender: ":1.0"}, properties()))
		if err != nil || r.serial != 9 {
			t.Fatalf("%d %v", r.serial, err)
		}
		seen := 0
		var at uint64
		var names []string
		err = r.Properties(func(name []byte, kind string, d *Decoder) {
			seen++
			switch string(name) + " " + kind {
			case "At t":
				at = d.U64()
			case "Names as":
				names = d.Texts()
			}
		})
		if err != nil || seen != len(properties()) || at != 47436840222 || strings.Join(names, " ") != "a.service b.service" {
			t.Errorf("%s: %d properties, at %d, names %v: %v", order, seen, at, names, err)
		}
	}
}

func TestCallsAreUnderstood(t *testing.T) {
	for _, c := range []Call{
		{Path: Object, Iface: Manager, Member: "ListUnits"},
		{Path: Object, Iface: Properties, Member: "Get", Args: []string{Unit, "After"}},
		{Path: Object, Iface: Manager, Member: "ListUnitsFiltered", List: []string{"failed", "active"}},
		{Path: Object, Iface: Manager, Member: "ListUnitsFiltered", List: []string{}},
	} {
		// After another one, so that it is not aligned by chance.
		raw := appendCall(appendCall(nil, 1, "", Call{Path: "/a", Iface: "b.c", Member: "D", Args: []string{"e"}}), 2, Name, c)
		in := bytes.NewReader(raw)
		if _, err := dbus.DecodeMessage(in); err != nil {
			t.Fatal(err)
		}
		m, err := dbus.DecodeMessage(in)
		if err != nil || in.Len() > 0 {
			t.Fatalf("%s: %v, %d bytes are left", c.Member, err, in.Len())
		}
		if m.Headers[dbus.FieldMember].Value() != c.Member || m.Headers[dbus.FieldDestination].Value() != Name || m.IsValid() != nil {
			t.Errorf("%+v: %v", m, m.IsValid())
		}
		for i, a := range c.Args {
			if m.Body[i] != a {
				t.Errorf("argument %v, want %s", m.Body[i], a)
			}
		}
		if list, _ := m.Body[max(0, len(m.Body)-1):], c.List; c.List != nil && strings.Join(list[0].([]string), " ") != strings.Join(c.List, " ") {
			t.Errorf("list %v, want %v", list, c.List)
		}
	}
}

func TestErrorsAndSignalsAreTold(t *testing.T) {
	r, err := Parse(encoded(t, dbus.TypeError, binary.LittleEndian, map[dbus.HeaderField]any{dbus.FieldReplySerial: uint32(3), dbus.FieldErrorName: "a.b.C"}, "no such unit"))
	if err != nil || r.Err == nil || !strings.Contains(r.Err.Error(), "no such unit") || r.Properties(nil) == nil {
		t.Errorf("%v %v", r.Err, err)
	}
	path := ObjectPath("kubelet.service")
	if path != Object+"/unit/kubelet_2eservice" {
		t.Error(path)
	}
	changed := map[dbus.HeaderField]any{dbus.FieldPath: dbus.ObjectPath(path), dbus.FieldInterface: Properties, dbus.FieldMember: changedSignal}
	r, err = Parse(encoded(t, dbus.TypeSignal, binary.LittleEndian, changed, Unit, properties(), []string{}))
	if s, ok := ReadSignal(&r); err != nil || !ok || s.Path != path || s.Restarts != 7 {
		t.Errorf("%+v %v %v", s, ok, err)
	}
	changed[dbus.FieldPath] = dbus.ObjectPath("/elsewhere")
	r, err = Parse(encoded(t, dbus.TypeSignal, binary.LittleEndian, changed, Unit, properties(), []string{}))
	if _, ok := ReadSignal(&r); err != nil || ok {
		t.Errorf("a signal of another object was taken: %v", err)
	}
}

// FuzzMessage reads what is no message, or a broken one, without a panic and
// without reading beyond it.
func FuzzMessage(f *testing.F) {
	f.Add(encoded(f, dbus.TypeMethodReply, binary.LittleEndian, map[dbus.HeaderField]any{dbus.FieldReplySerial: uint32(1)}, properties()))
	f.Add(encoded(f, dbus.TypeMethodReply, binary.BigEndian, map[dbus.HeaderField]any{dbus.FieldReplySerial: uint32(1)}, dbus.MakeVariant([]string{"a"})))
	f.Add(appendCall(nil, 1, Name, Call{Path: Object, Iface: Properties, Member: "Get", Args: []string{Unit, "After"}}))
	f.Fuzz(func(t *testing.T, message []byte) {
		r, err := Parse(message)
		if err != nil {
			return
		}
		for _, read := range []func(r *Reply){
			func(r *Reply) { r.Body.skip(r.Signature, 0) },
			func(r *Reply) {
				_ = r.Properties(func(_ []byte, kind string, d *Decoder) {
					if kind == "as" {
						d.Texts()
					}
				})
			},
			func(r *Reply) { r.Variant(); r.Body.Texts() },
			func(r *Reply) { ReadSignal(r) },
		} {
			one := r
			read(&one)
			if one.Body.at > len(one.Body.b) && one.Body.err == nil {
				// Alignment may lead beyond the end; the next value then fails.
				if one.Body.U32(); one.Body.err == nil {
					t.Errorf("at %d of %d", one.Body.at, len(one.Body.b))
				}
			}
		}
	})
}
