package boot

import (
	"encoding/binary"
	"reflect"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/wire"
)

// answer writes a method's answer with a body as systemd does, for tests.
func answer(serial uint32, signature string, body func(w *writer)) []byte {
	w := writer{}
	w.b = append(w.b, 'l', methodReturn, 1, 1)
	w.u32(0)
	w.u32(1)
	w.u32(0)
	fields := len(w.b)
	w.align(8)
	w.b = append(w.b, fieldReplySerial)
	w.signature("u")
	w.u32(serial)
	w.field(7, "s", ":1.0") // the sender, which is passed over
	w.align(8)
	w.b = append(w.b, fieldSignature)
	w.signature("g")
	w.signature(signature)
	binary.LittleEndian.PutUint32(w.b[12:], uint32(len(w.b)-fields))
	w.align(8)
	at := len(w.b)
	// The body is aligned by its own start, which is a multiple of 8.
	body(&w)
	binary.LittleEndian.PutUint32(w.b[4:], uint32(len(w.b)-at))
	return w.b
}

func (w *writer) u64(v uint64) {
	w.align(8)
	w.b = binary.LittleEndian.AppendUint64(w.b, v)
}

// list writes an array of elements aligned so.
func (w *writer) list(align int, fill func()) {
	w.u32(0)
	length := len(w.b) - 4
	w.align(align)
	from := len(w.b)
	fill()
	binary.LittleEndian.PutUint32(w.b[length:], uint32(len(w.b)-from))
}

func parsed(t testing.TB, message []byte) (reply, bool, error) {
	t.Helper()
	if len(message) < fixedHeader {
		return reply{}, false, errMessage
	}
	h, err := readHeader(message[:fixedHeader])
	if err != nil {
		return reply{}, false, err
	}
	return readReply(h, message[fixedHeader:])
}

func TestPropertiesAreReadAndOthersPassedOver(t *testing.T) {
	message := answer(7, "a{sv}", func(w *writer) {
		w.list(8, func() {
			entry := func(name, kind string, value func()) {
				w.align(8)
				w.text(name)
				w.signature(kind)
				value()
			}
			entry("Names", "as", func() { w.list(4, func() { w.text("a.service"); w.text("b.service") }) })
			entry("Odd", "a(sbbsi)", func() {
				w.list(8, func() {
					w.align(8)
					w.text("x")
					w.u32(1)
					w.u32(0)
					w.text("y")
					w.u32(9)
				})
			})
			entry("Nested", "v", func() { w.signature("(ya{s(tx)}d)"); w.align(8); w.b = append(w.b, 1); w.list(8, func() {}); w.u64(5) })
			entry("UserspaceTimestampMonotonic", "t", func() { w.u64(4_000_123) })
			entry("UserspaceTimestamp", "t", func() { w.u64(1_795_268_144_693_998) })
			entry("Virtualization", "s", func() { w.text("container-other") })
		})
	})
	r, ok, err := parsed(t, message)
	if err != nil || !ok || r.serial != 7 {
		t.Fatalf("%+v %v %v", r, ok, err)
	}
	m, err := parseManager(&r)
	if err != nil {
		t.Fatal(err)
	}
	if m.times.Userspace != 4_000_123 || !m.inContainer() || m.times.SoftReboot != 4_000_123 {
		t.Errorf("%+v", m)
	}
	if got, want := m.clocks(), []wire.ClockReading{{Monotonic: 4_000_123, Wall: 1_795_268_144_693_998}}; !reflect.DeepEqual(got, want) {
		t.Errorf("clocks %v, want %v", got, want)
	}
}

func TestUnitsAreListed(t *testing.T) {
	message := answer(1, "a(ssssssouso)", func(w *writer) {
		w.list(8, func() {
			for _, name := range []string{"a.service", "-.mount"} {
				w.align(8)
				for _, s := range []string{name, "what it is", "loaded", "active", "running", "", "/unit/" + name} {
					w.text(s)
				}
				w.u32(0)
				w.text("")
				w.text("/")
			}
		})
	})
	r, _, err := parsed(t, message)
	if err != nil {
		t.Fatal(err)
	}
	units, err := parseUnits(&r)
	if err != nil || len(units) != 2 || units[1].Name != "-.mount" || units[1].path != "/unit/-.mount" {
		t.Errorf("%+v %v", units, err)
	}
}

func TestErrorsAreTold(t *testing.T) {
	message := answer(3, "s", func(w *writer) { w.text("no such unit") })
	message[1] = methodError
	r, ok, err := parsed(t, message)
	if err != nil || !ok || r.err == nil || !strings.Contains(r.err.Error(), "no such unit") {
		t.Errorf("%v %v %v", r.err, ok, err)
	}
}

// FuzzMessage reads what is no message, or a broken one, without a panic and
// without reading beyond it.
func FuzzMessage(f *testing.F) {
	f.Add(answer(1, "a{sv}", func(w *writer) {
		w.list(8, func() { w.align(8); w.text("A"); w.signature("aa{s(tv)}"); w.list(4, func() {}) })
	}))
	f.Add(answer(1, "a(ssssssouso)", func(w *writer) { w.list(8, func() {}) }))
	f.Add(appendCall(nil, 1, systemdName, call{systemdObject, propertyIface, "Get", []string{unitIface, "After"}}))
	f.Fuzz(func(t *testing.T, message []byte) {
		r, ok, err := parsed(t, message)
		if err != nil || !ok {
			return
		}
		body := r.body
		_, _ = parseManager(&r)
		r.body = body
		_, _ = parseUnits(&r)
		r.body = body
		d := r.body
		d.skip(r.signature, 0)
		if d.at > len(d.b) && d.err == nil {
			t.Errorf("at %d of %d", d.at, len(d.b))
		}
		for _, q := range append(append(append(begins(), ofStarted()...), ofConditions()...), ofServices()...) {
			d := body
			q.take(&unit{}, r.signature, &d)
		}
	})
}
