package bootstrap

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/godbus/dbus/v5"

	"github.com/ortet/ortet/internal/boots/verdict"
	"github.com/ortet/ortet/internal/node/systemd"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/systemdtest"
)

// standIn is a systemd that knows units' properties and signals changes.
type standIn struct {
	*systemdtest.Server

	mu    sync.Mutex
	props map[string]map[string]any // of units by name
}

func newSystemd(t *testing.T, r root, units map[string]map[string]any) *standIn {
	t.Helper()
	r.folder("/run/systemd")
	s := &standIn{props: units}
	s.Server = systemdtest.Listen(t, r.path("/run/systemd/private"), s.answer)
	return s
}

func (s *standIn) answer(member string, m *dbus.Message) *dbus.Message {
	path, _ := m.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch member {
	case "Subscribe":
		return systemdtest.Reply()
	case "LoadUnit":
		name, _ := m.Body[0].(string)
		return systemdtest.Reply(systemd.ObjectPath(name))
	case "GetUnit":
		name, _ := m.Body[0].(string)
		if s.props[name] == nil {
			return systemdtest.Refusal()
		}
		return systemdtest.Reply(systemd.ObjectPath(name))
	case "Get":
		property, _ := m.Body[1].(string)
		for name, props := range s.props {
			if systemd.ObjectPath(name) == path {
				if v, ok := props[property]; ok {
					return systemdtest.Reply(dbus.MakeVariant(v))
				}
				return systemdtest.Refusal()
			}
		}
		if property == "LoadState" {
			return systemdtest.Reply(dbus.MakeVariant("not-found"))
		}
		return systemdtest.Refusal()
	case "ListUnitsFiltered":
		type row struct {
			Name, Description, Load, Active, Sub, Following string
			Path                                            dbus.ObjectPath
			Job                                             uint32
			JobType                                         string
			JobPath                                         dbus.ObjectPath
		}
		states, _ := m.Body[0].([]string)
		var rows []row
		for name, props := range s.props {
			active, _ := props["ActiveState"].(string)
			sub, _ := props["SubState"].(string)
			if slices.Contains(states, active) || slices.Contains(states, sub) {
				rows = append(rows, row{Name: name, Active: active, Sub: sub, Path: systemd.ObjectPath(name), JobPath: "/"})
			}
		}
		return systemdtest.Reply(rows)
	}
	return systemdtest.Refusal()
}

// change sets a unit's properties and signals it.
func (s *standIn) change(name string, props map[string]any) {
	s.mu.Lock()
	if s.props[name] == nil {
		s.props[name] = map[string]any{"LoadState": "loaded"}
	}
	maps.Copy(s.props[name], props)
	s.mu.Unlock()
	s.Changed(name, systemd.Unit, props)
}

func running(restarts uint32) map[string]any {
	return map[string]any{"LoadState": "loaded", "ActiveState": "active", "SubState": "running", "NRestarts": restarts, "Result": "success", "ExecMainStatus": int32(0)}
}

func crashed(restarts uint32) map[string]any {
	return map[string]any{"ActiveState": "activating", "SubState": "auto-restart", "NRestarts": restarts, "Result": "exit-code", "ExecMainStatus": int32(255)}
}

// withUnits waits, and runs f once the units are watched.
func (r root) withUnits(o Options, address string, f func()) wire.Verdict {
	r.t.Helper()
	o, err := o.complete()
	if err != nil {
		r.t.Fatal(err)
	}
	watched := make(chan struct{})
	n := newNode(o, identifyNode(o), slog.New(notice{said: "units are watched", began: watched, once: new(atomic.Bool)}))
	n.kubelet.address = address
	acted := make(chan struct{})
	go func() {
		defer close(acted)
		<-watched
		f()
	}()
	v, err := n.wait(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	<-acted
	r.nothingRuns()
	return v
}

func TestKubeletCrashLoopsAfterTheSentinel(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	s := newSystemd(t, r, map[string]map[string]any{"kubelet.service": running(4)})
	o := r.options()
	o.Kubelet = KubeletAuto
	r.write("/usr/lib/systemd/system/kubelet.service", "[Service]\n")
	asked := make(chan struct{}, 1000)
	port := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		http.Error(w, "not yet", http.StatusInternalServerError)
	}))
	defer port.Close()
	v := r.withUnits(o, port.Listener.Addr().String(), func() {
		r.write(sentinelPath, "")
		<-asked // it knows of the sentinel, and how often the kubelet had crashed till then
		s.change("kubelet.service", crashed(4))
		for i := range uint32(crashLoop) {
			s.change("kubelet.service", running(5+i))
			s.change("kubelet.service", crashed(5+i))
		}
	})
	if v.Outcome != wire.Failed || v.Stage == "" || !strings.Contains(strings.ToLower(v.Reason+v.Message), "kubelet") {
		t.Errorf("%+v", v)
	}
}

func TestUnitThatIsAskedFor(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	s := newSystemd(t, r, map[string]map[string]any{"app.service": {"LoadState": "loaded", "ActiveState": "activating", "SubState": "start"}})
	o := r.options()
	o.Units, o.Sentinel = []string{"app"}, NoSentinel
	v := r.withUnits(o, "", func() { s.change("app.service", running(0)) })
	if v.Outcome != wire.Succeeded {
		t.Errorf("it became active: %+v", v)
	}

	v = r.withUnits(o, "", func() {})
	if v.Outcome != wire.Succeeded {
		t.Errorf("it was active before: %+v", v)
	}

	s.change("app.service", map[string]any{"ActiveState": "activating", "SubState": "start"})
	v = r.withUnits(o, "", func() {
		s.change("app.service", map[string]any{"ActiveState": "failed", "SubState": "failed", "Result": "exit-code", "ExecMainStatus": int32(7)})
	})
	if v.Outcome != wire.Failed || v.Stage != "app.service" || v.ExitCode == nil || *v.ExitCode != 7 {
		t.Errorf("it failed: %+v", v)
	}
}

func TestCloudFinalDies(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	s := newSystemd(t, r, map[string]map[string]any{"cloud-final.service": {"LoadState": "loaded", "ActiveState": "activating", "SubState": "start"}})
	v := r.withUnits(r.options(), "", func() {
		s.change("cloud-final.service", map[string]any{"ActiveState": "failed", "SubState": "failed", "Result": "oom-kill", "ExecMainStatus": int32(9)})
	})
	if v.Outcome != wire.Failed {
		t.Errorf("%+v", v)
	}
}

// A unit that failed is the reason only where what makes the node requires it;
// others are quoted.
func TestUnitsThatFailedBesides(t *testing.T) {
	t.Parallel()
	failed := func(result string) map[string]any {
		return map[string]any{"LoadState": "loaded", "ActiveState": "failed", "SubState": "failed", "Result": result, "ExecMainStatus": int32(3)}
	}
	for name, c := range map[string]struct {
		requires []string
		reason   string
	}{
		"required by the kubelet": {[]string{"sysinit.target", "site-disks.service"}, "UnitFailed"},
		"required by nothing":     {[]string{"sysinit.target"}, "SentinelMissing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoot(t)
			kubelet := running(0)
			kubelet["Requires"], kubelet["Requisite"], kubelet["BindsTo"] = c.requires, []string{}, []string{}
			units := map[string]map[string]any{"kubelet.service": kubelet, "site-disks.service": failed("exit-code")}
			for i := range 2 * maxFailedUnits {
				units[fmt.Sprintf("another%d.service", i)] = failed("timeout")
			}
			newSystemd(t, r, units)
			r.folder(runPath)
			v := r.withUnits(r.options(), "", func() { r.write(runPath+"result.json", `{"v1":{"datasource":null,"errors":[]}}`) })
			if v.Outcome != wire.Failed || v.Reason != c.reason || !strings.Contains(fmt.Sprint(v.Evidence), "another") {
				t.Errorf("%+v, want %s with the others beside it", v, c.reason)
			}
		})
	}
}

// A unit that failed and that systemd waits to start again is not "failed" to it.
func TestUnitThatWaitsToBeStartedAgain(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	containerd := crashed(1)
	containerd["LoadState"], containerd["ExecMainStatus"] = "loaded", int32(203)
	newSystemd(t, r, map[string]map[string]any{"kubelet.service": running(0), "containerd.service": containerd})
	r.folder(runPath)
	v := r.withUnits(r.options(), "", func() { r.write(runPath+"result.json", `{"v1":{"datasource":null,"errors":[]}}`) })
	if v.Outcome != wire.Failed || v.Reason != "ContainerdMissing" {
		t.Errorf("%+v", v)
	}
}

// systemd that goes away costs only what it tells; one that comes later is found.
func TestConnectionToSystemdIsLost(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	s := newSystemd(t, r, map[string]map[string]any{})
	v := r.withUnits(r.options(), "", func() {
		s.HangUp()
		r.write(sentinelPath, "")
	})
	if v.Outcome != wire.Succeeded {
		t.Errorf("%+v", v)
	}
}

func TestBusThatSaysNothing(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	r.folder(filepath.Dir(busSocket))
	l, err := net.Listen("unix", r.path(busSocket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	r.write(sentinelPath, "")
	if v := r.wait(r.options()); v.Outcome != wire.Succeeded {
		t.Errorf("%+v", v)
	}
}

// What comes over the bus is read whatever it holds.
func FuzzBusSignal(f *testing.F) {
	changed := map[string]dbus.Variant{"NRestarts": dbus.MakeVariant(uint32(7)), "ActiveState": dbus.MakeVariant("failed")}
	for _, body := range [][]any{{systemd.Unit, changed, []string{}}, {systemd.Unit}, {uint32(1), []string{"x"}, changed}} {
		m := &dbus.Message{Type: dbus.TypeSignal, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath: dbus.MakeVariant(systemd.ObjectPath("kubelet.service")), dbus.FieldInterface: dbus.MakeVariant(systemd.Properties),
			dbus.FieldMember: dbus.MakeVariant("PropertiesChanged"), dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(body...)),
		}}
		var b strings.Builder
		if err := m.EncodeTo(&b, binary.LittleEndian); err != nil {
			f.Fatal(err)
		}
		raw := []byte(b.String())
		binary.LittleEndian.PutUint32(raw[8:], 1)
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := dbus.DecodeMessage(bytes.NewReader(raw))
		if err != nil || m.Type != dbus.TypeSignal {
			return
		}
		path, _ := m.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
		s, _ := systemd.ReadSignal(&dbus.Signal{Path: path, Name: systemd.Properties + ".PropertiesChanged", Body: m.Body})
		if u := withSignal(unitSeen{}, s); u.Restarts < 0 || u.Restarts > 1<<20 {
			t.Errorf("%d restarts", u.Restarts)
		}
	})
}

func FuzzUnitPath(f *testing.F) {
	f.Add("kubelet.service")
	f.Add("a\\x2db.mount")
	f.Add("1\x00é")
	f.Fuzz(func(t *testing.T, name string) {
		if path := systemd.ObjectPath(name); name != "" && !path.IsValid() {
			t.Errorf("%q: %q", name, path)
		}
	})
}

func TestUnitPath(t *testing.T) {
	for name, want := range map[string]dbus.ObjectPath{
		"kubelet.service":     "/org/freedesktop/systemd1/unit/kubelet_2eservice",
		"k3s-agent.service":   "/org/freedesktop/systemd1/unit/k3s_2dagent_2eservice",
		"1password.service":   "/org/freedesktop/systemd1/unit/_31password_2eservice",
		"getty@tty1.service":  "/org/freedesktop/systemd1/unit/getty_40tty1_2eservice",
		"a\\x2db.mount":       "/org/freedesktop/systemd1/unit/a_5cx2db_2emount",
		"under_score.service": "/org/freedesktop/systemd1/unit/under_5fscore_2eservice",
	} {
		if got := systemd.ObjectPath(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestCrashes(t *testing.T) {
	for _, c := range []struct {
		u    verdict.Unit
		want int
	}{{verdict.Unit{Restarts: 2, Sub: "running"}, 2}, {verdict.Unit{Restarts: 2, Sub: "auto-restart"}, 3}, {verdict.Unit{Restarts: 3, Sub: "auto-restart-queued"}, 3}} {
		if got := (unitSeen{Unit: c.u}).crashes(); got != c.want {
			t.Errorf("%+v: %d", c.u, got)
		}
	}
}

// At a boot's beginning there may be no bus yet.
func TestBusThatComesLater(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	o := r.options()
	o.Units, o.Sentinel = []string{"app.service"}, NoSentinel
	o, err := o.complete()
	if err != nil {
		t.Fatal(err)
	}
	alone := make(chan struct{})
	n := newNode(o, identifyNode(o), slog.New(notice{said: "units cannot be watched at present", began: alone, once: new(atomic.Bool)}))
	come := make(chan struct{})
	go func() {
		defer close(come)
		<-alone
		newSystemd(t, r, map[string]map[string]any{"app.service": running(0)})
		r.write(busSocket, "")
	}()
	v, err := n.wait(t.Context())
	<-come
	if err != nil || v.Outcome != wire.Succeeded {
		t.Errorf("%+v, %v", v, err)
	}
	r.nothingRuns()
}
