package join

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/ortet/ortet/internal/node/systemd"
	"github.com/ortet/ortet/internal/wire"
)

// service is an agent that does what it is told.
type service struct {
	stopped []string
	runs    bool
	err     error
}

func (s *service) Stop(_ context.Context, unit string) error {
	s.stopped = append(s.stopped, unit)
	return s.err
}

func (s *service) Runs(context.Context, string) (bool, error) { return s.runs, s.err }

func TestDepart(t *testing.T) {
	day := 24 * time.Hour
	for name, c := range map[string]struct {
		distribution string
		departure    Departure
		agent        service
		refuse       func(path string) *wire.Refusal
		asked        string // by whom, in order
		stopped      string
		wrong        string // in the error
		state        State
	}{
		"all of it":        {wire.Kubelet, Departure{}, service{}, nil, "/v1/leave system:node:" + ourName + " /v1/left system:node:" + ourName, "kubelet.service", "", HasLeft},
		"k3s":              {wire.K3s, Departure{}, service{}, nil, "/v1/leave system:node:" + ourName + " /v1/left system:node:" + ourName, "k3s-agent.service", "", HasLeft},
		"it stays":         {wire.Kubelet, Departure{Stay: true}, service{}, nil, "/v1/leave system:node:" + ourName, "", "", Joined},
		"drain only":       {wire.Kubelet, Departure{Part: DrainPart}, service{}, nil, "/v1/leave system:node:" + ourName, "", "", Joined},
		"it stands still":  {wire.Kubelet, Departure{Part: LeftPart}, service{}, nil, "/v1/left system:node:" + ourName, "", "", HasLeft},
		"it does not":      {wire.Kubelet, Departure{Part: LeftPart}, service{runs: true}, nil, "", "", "kubelet.service runs still", Joined},
		"it does not stop": {wire.Kubelet, Departure{}, service{err: errors.New("it hangs")}, nil, "/v1/leave system:node:" + ourName, "kubelet.service", "it hangs; so the server was not told", Joined},
		"what is refused is told, and the rest done": {wire.Kubelet, Departure{}, service{}, func(path string) *wire.Refusal {
			if path == wire.LeavePath {
				return &wire.Refusal{Reason: "Never", Message: "no", Final: true}
			}
			return nil
		}, "/v1/leave refused Never /v1/left system:node:" + ourName, "kubelet.service", "draining: 127.0.0.1", HasLeft},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.settings.Distribution = c.distribution
			w.write(RecordFile, `{"state":"joined","vmId":"`+ourVM+`","nodeName":"`+ourName+`"}`)
			w.kubelet(ourName, time.Now().Add(day))
			agent := c.agent
			w.options.Agent, w.refuse = &agent, c.refuse
			c.departure.Cause, c.departure.Within = "Preempt", 20*time.Second
			err := w.client().Depart(t.Context(), c.departure)
			if (err != nil) != (c.wrong != "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%v, want %q in it", err, c.wrong)
			}
			if got := strings.Join(w.asked, " "); got != c.asked {
				t.Errorf("asked: %s; want %s", got, c.asked)
			}
			if got := strings.Join(agent.stopped, " "); got != c.stopped || w.record().State != c.state {
				t.Errorf("stopped %q, and the record is %+v", got, w.record())
			}
		})
	}
}

// A node that has left joins anew when it starts again.
func TestWhoHasLeftJoinsAnew(t *testing.T) {
	w := newWorld(t)
	w.mustJoin()
	w.kubelet(ourName, time.Now().Add(time.Hour))
	w.options.Agent = &service{}
	for range 2 {
		if err := w.client().Depart(t.Context(), Departure{Cause: "Asked", Within: 10 * time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	if w.there(ReadyFile) {
		t.Error("an agent may start")
	}
	w.mustJoin()
	if w.joins != 2 || w.record().State != Joined || w.read("/etc/kubernetes/kubelet.conf") != "" {
		t.Errorf("%d joins, %+v", w.joins, w.record())
	}
}

// Where the kubelet has no certificate that the server takes, the machine is proven
// by Azure.
func TestLeaveIsProvenInAnotherWay(t *testing.T) {
	w := newWorld(t)
	if _, err := w.client().Leave(t.Context(), wire.LeaveRequest{Cause: "Preempt", Within: 5}); err != nil {
		t.Fatal(err)
	}
	stranger := newWorld(t)
	stranger.ca = newAuthority(t, "another cluster's")
	stranger.kubelet(ourName, time.Now().Add(time.Hour))
	if err := stranger.client().Left(t.Context(), "Preempt"); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(append(w.asked, stranger.asked...), " "); !strings.HasSuffix(got, "/v1/left proof") || !strings.HasPrefix(got, "/v1/leave proof") {
		t.Errorf("asked: %s", got)
	}
}

// With the server away it is tried for as long as there is time, and the agent is
// stopped in time.
func TestDepartWithoutAServer(t *testing.T) {
	w := newWorld(t)
	w.write(RecordFile, `{"state":"joined","vmId":"`+ourVM+`","nodeName":"`+ourName+`"}`)
	w.server.Close()
	agent := &service{}
	w.options.Agent = agent
	now := time.Now()
	w.options.Now = func() time.Time { return now }
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	w.options.Wait = func(_ context.Context, d time.Duration) error {
		if now = now.Add(d); now.Sub(time.Now()) > 40*time.Second { //nolint:staticcheck // a test's clock
			stop()
		}
		return ctx.Err()
	}
	err := w.client().Depart(ctx, Departure{Cause: "Preempt", Within: 30 * time.Second})
	if err == nil || !strings.Contains(err.Error(), "draining: ") || !strings.Contains(err.Error(), "telling that kubelet.service stands still: ") || len(agent.stopped) != 1 {
		t.Errorf("%v; stopped %q", err, agent.stopped)
	}
	if w.record().State != HasLeft {
		t.Errorf("%+v", w.record())
	}
}

// manager is what is asked of systemd, on a real message bus.
type manager struct {
	mu      sync.Mutex
	states  map[string][]string // of units, in turn
	jobs    map[string]uint32
	stopped []string
}

func (m *manager) StopUnit(name, mode string) (dbus.ObjectPath, *dbus.Error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.states[name]; !ok {
		return "", dbus.NewError(systemd.Name+".NoSuchUnit", []any{"Unit " + name + " not loaded."})
	}
	m.stopped = append(m.stopped, name+" "+mode)
	return "/org/freedesktop/systemd1/job/1", nil
}

type unitOf struct {
	m    *manager
	name string
}

func (u unitOf) Get(_, property string) (dbus.Variant, *dbus.Error) {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	if property == "Job" {
		return dbus.MakeVariant(struct {
			ID   uint32
			Path dbus.ObjectPath
		}{u.m.jobs[u.name], "/"}), nil
	}
	all := u.m.states[u.name]
	if len(all) == 0 {
		return dbus.MakeVariant("inactive"), nil
	}
	if len(all) > 1 {
		u.m.states[u.name] = all[1:]
	}
	return dbus.MakeVariant(all[0]), nil
}

func TestSystemdIsAsked(t *testing.T) {
	program, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("NOT RUN: there is no dbus-daemon")
	}
	dir := t.TempDir()
	socket, config := filepath.Join(dir, "bus"), filepath.Join(dir, "bus.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, `<busconfig><type>session</type><listen>unix:path=%s</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>`, socket), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "--config-file="+config, "--nofork", "--print-address=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the bus did not come up: %v", err)
	}
	conn, err := dbus.Connect("unix:path=" + socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	m := &manager{states: map[string][]string{"kubelet.service": {"active", "deactivating", "deactivating", "failed"}}, jobs: map[string]uint32{}}
	problems := []error{conn.Export(m, systemd.Object, systemd.Manager)}
	for _, name := range []string{"kubelet.service", "k3s-agent.service", "poweroff.target", "halt.target"} {
		problems = append(problems, conn.Export(unitOf{m, name}, dbus.ObjectPath(systemd.ObjectPath(name)), systemd.Properties))
	}
	if err := errors.Join(problems...); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.RequestName(systemd.Name, dbus.NameFlagDoNotQueue); err != nil {
		t.Fatal(err)
	}
	addresses := []systemd.Address{{Path: filepath.Join(dir, "none")}, {Path: socket, Shared: true}}
	waits := 0
	u := units{addresses: addresses, wait: func(ctx context.Context, _ time.Duration) error { waits++; return ctx.Err() }}
	if runs, err := u.Runs(t.Context(), "kubelet.service"); err != nil || !runs {
		t.Errorf("it runs: %v, %v", runs, err)
	}
	for _, name := range []string{"kubelet.service", "k3s-agent.service"} {
		if err := u.Stop(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(m.stopped, []string{"kubelet.service replace"}) || waits != 2 {
		t.Errorf("stopped %q with %d pauses", m.stopped, waits)
	}
	if runs, err := u.Runs(t.Context(), "kubelet.service"); err != nil || runs {
		t.Errorf("it runs: %v, %v", runs, err)
	}
	for want, job := range map[bool]uint32{false: 0, true: 77} {
		m.mu.Lock()
		m.jobs["poweroff.target"] = job
		m.mu.Unlock()
		if off, err := poweringOff(t.Context(), addresses); err != nil || off != want {
			t.Errorf("powering off: %v, %v; want %v", off, err, want)
		}
	}
}
