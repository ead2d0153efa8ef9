package wire

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
)

// aBootReport is a report of so many units, each ordered after some before it.
func aBootReport(units int) BootReport {
	r := BootReport{Version: BootReportVersion, Node: "pool1000001", VMID: "11111111-2222-4333-8444-555555555555", BootID: "aaaaaaaa-0000-4000-8000-000000000001",
		At: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Clocks: []ClockReading{{Monotonic: 1e6, Wall: 1795262400e6}}, System: SystemTimes{Userspace: 2e6, Finish: 60e6}}
	random := rand.New(rand.NewPCG(1, 2))
	at := Micros(2e6)
	for i := range units {
		u := BootUnit{Name: fmt.Sprintf("unit-%d.service", i), Activating: at, Activated: at + Micros(random.IntN(1e6))}
		for range min(i, 8) {
			u.After = append(u.After, fmt.Sprintf("unit-%d.service", random.IntN(i)))
		}
		at += Micros(random.IntN(1e5))
		r.Units = append(r.Units, u)
	}
	return r
}

func TestBootAnnotation(t *testing.T) {
	for _, units := range []int{0, 1, 400} {
		r := aBootReport(units)
		value, err := EncodeBootAnnotation(r)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := EncodeBootAnnotation(r); err != nil || again != value {
			t.Errorf("%d units: another value the second time (%v)", units, err)
		}
		back, err := DecodeBootAnnotation(value)
		if err != nil || !reflect.DeepEqual(back, r) {
			t.Errorf("%d units: %v\n%+v\nwant %+v", units, err, back, r)
		}
		t.Logf("%d units: %d bytes", units, len(value))
	}
	if _, err := EncodeBootAnnotation(aBootReport(4000)); !errors.Is(err, ErrBootTooLarge) {
		t.Errorf("a report that does not fit: %v", err)
	}
	if _, err := EncodeBootAnnotation(BootReport{}); err == nil {
		t.Error("a report without a version is written")
	}
}

// packed is a value with any text in it.
func packed(t testing.TB, text []byte) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return bootMark + base64.StdEncoding.EncodeToString(b.Bytes())
}

func TestHostileBootAnnotations(t *testing.T) {
	good, err := EncodeBootAnnotation(aBootReport(3))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(good[len(bootMark):])
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ value, says string }{
		"nothing":         {"", "does not begin with the mark v1:"},
		"another version": {"v2:" + good[3:], "does not begin with the mark v1:"},
		"no base64":       {"v1:%%%", "illegal base64"},
		"no gzip":         {"v1:" + base64.StdEncoding.EncodeToString([]byte("hello")), "unpack"},
		"cut off":         {"v1:" + base64.StdEncoding.EncodeToString(raw[:len(raw)-9]), "unexpected EOF"},
		"something after": {"v1:" + base64.StdEncoding.EncodeToString(append(bytes.Clone(raw), raw...)), "something follows"},
		"a bomb":          {packed(t, bytes.Repeat([]byte(" "), 8*MaxBootReport)), "more than"},
		"many objects":    {packed(t, []byte(`{"version":1,"node":"{\"{","system":{},"units":[`+strings.Repeat("{},", 1<<20)+`{}]}`)), "objects"},
		"too long":        {"v1:" + strings.Repeat("A", MaxBootAnnotation), "more than"},
		"other fields":    {packed(t, []byte(`{"version":1,"system":{},"shell":"rm"}`)), "unknown field"},
		"control chars":   {packed(t, []byte(`{"version":1,"node":"a\u001b[2J","system":{}}`)), "control character"},
	} {
		if _, err := DecodeBootAnnotation(c.value); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

func FuzzDecodeBootAnnotation(f *testing.F) {
	for _, units := range []int{0, 2, 40} {
		value, err := EncodeBootAnnotation(aBootReport(units))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(value)
	}
	f.Add(packed(f, []byte(`{"version":1}`)))
	f.Fuzz(func(t *testing.T, value string) {
		r, err := DecodeBootAnnotation(value)
		if err != nil {
			return
		}
		// What is taken can be stored, and means the same then.
		kept, err := PackBootReport(r)
		if err != nil {
			t.Fatal(err)
		}
		back, err := UnpackBootReport(kept)
		if err != nil || !reflect.DeepEqual(back, r) {
			t.Errorf("%v: %+v, was %+v", err, back, r)
		}
	})
}
