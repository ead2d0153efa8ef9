package bootstrap

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
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
)

// standIn is one for systemd, that speaks D-Bus on its private socket: it knows units'
// properties and tells of changes, as systemd does.
type standIn struct {
	t      *testing.T
	listen net.Listener
	work   sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	props map[string]map[string]any // of units by name
}

func newSystemd(t *testing.T, r root, units map[string]map[string]any) *standIn {
	t.Helper()
	r.folder("/run/systemd")
	l, err := net.Listen("unix", r.path("/run/systemd/private"))
	if err != nil {
		t.Fatal(err)
	}
	s := &standIn{t: t, listen: l, props: units}
	s.work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, c)
			s.mu.Unlock()
			s.work.Go(func() {
				if err := s.serve(c); err != nil && !errors.Is(err, net.ErrClosed) {
					t.Logf("the stand-in: %v", err)
				}
			})
		}
	})
	t.Cleanup(s.close)
	return s
}

func (s *standIn) close() {
	_ = s.listen.Close()
	s.hangUp()
	s.work.Wait()
}

func (s *standIn) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.conns = nil
}

func (s *standIn) serve(c net.Conn) error {
	r := bufio.NewReader(c)
	if b, err := r.ReadByte(); err != nil || b != 0 {
		return fmt.Errorf("no leading zero: %d, %w", b, err)
	}
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		answer := "ERROR\r\n"
		switch {
		case strings.HasPrefix(line, "AUTH EXTERNAL"):
			answer = "OK 0123456789abcdef0123456789abcdef\r\n"
		case strings.HasPrefix(line, "AUTH"):
			answer = "REJECTED EXTERNAL\r\n"
		case strings.HasPrefix(line, "BEGIN"):
			return s.messages(c, r)
		}
		if _, err := c.Write([]byte(answer)); err != nil {
			return err
		}
	}
}

func (s *standIn) messages(c net.Conn, r *bufio.Reader) error {
	for serial := uint32(1); ; serial++ {
		m, err := dbus.DecodeMessage(r)
		if err != nil {
			return err
		}
		body := s.answer(m)
		reply := &dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{dbus.FieldReplySerial: dbus.MakeVariant(m.Serial())}}
		if body == nil {
			reply.Type = dbus.TypeError
			reply.Headers[dbus.FieldErrorName] = dbus.MakeVariant("org.freedesktop.DBus.Error.UnknownProperty")
		} else if len(body) > 0 {
			reply.Body = body
			reply.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
		}
		if err := s.send(c, reply, serial); err != nil {
			return err
		}
	}
}

// send writes a message; the library leaves its serial to its own connections, so
// it is put where the format has it.
func (s *standIn) send(c net.Conn, m *dbus.Message, serial uint32) error {
	var b strings.Builder
	if err := m.EncodeTo(&b, binary.LittleEndian); err != nil {
		return err
	}
	raw := []byte(b.String())
	binary.LittleEndian.PutUint32(raw[8:], serial)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := c.Write(raw)
	return err
}

func (s *standIn) answer(m *dbus.Message) []any {
	member, _ := m.Headers[dbus.FieldMember].Value().(string)
	path, _ := m.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch member {
	case "Subscribe":
		return []any{}
	case "LoadUnit":
		name, _ := m.Body[0].(string)
		return []any{systemd.ObjectPath(name)}
	case "GetUnit":
		name, _ := m.Body[0].(string)
		if s.props[name] == nil {
			return nil
		}
		return []any{systemd.ObjectPath(name)}
	case "Get":
		property, _ := m.Body[1].(string)
		for name, props := range s.props {
			if systemd.ObjectPath(name) == path {
				if v, ok := props[property]; ok {
					return []any{dbus.MakeVariant(v)}
				}
				return nil
			}
		}
		if property == "LoadState" {
			return []any{dbus.MakeVariant("not-found")}
		}
		return nil
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
		return []any{rows}
	}
	return nil
}

// change sets a unit's properties and tells of it.
func (s *standIn) change(name string, props map[string]any) {
	changed := map[string]dbus.Variant{}
	s.mu.Lock()
	if s.props[name] == nil {
		s.props[name] = map[string]any{"LoadState": "loaded"}
	}
	for k, v := range props {
		s.props[name][k] = v
		changed[k] = dbus.MakeVariant(v)
	}
	conns := append([]net.Conn(nil), s.conns...)
	s.mu.Unlock()
	body := []any{systemd.Unit, changed, []string{}}
	m := &dbus.Message{Type: dbus.TypeSignal, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldPath: dbus.MakeVariant(systemd.ObjectPath(name)), dbus.FieldInterface: dbus.MakeVariant(systemd.Properties),
		dbus.FieldMember: dbus.MakeVariant("PropertiesChanged"), dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(body...)),
	}}
	for _, c := range conns {
		if err := s.send(c, m, 1000); err != nil {
			s.t.Logf("telling of %s: %v", name, err)
		}
	}
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
		s.hangUp()
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
