package join

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
		"all of it":        {wire.Kubelet, Departure{}, service{}, nil, "/v1/leave system:node:" + ourName + " /v1/left system:node:" + ourName, "kubelet.service ortet-join.service", "", HasLeft},
		"k3s":              {wire.K3s, Departure{}, service{}, nil, "/v1/leave system:node:" + ourName + " /v1/left system:node:" + ourName, "k3s-agent.service ortet-join.service", "", HasLeft},
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
		}, "/v1/leave refused Never /v1/left system:node:" + ourName, "kubelet.service ortet-join.service", "draining: 127.0.0.1", HasLeft},
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

// What a node that never joined has to say is heard: Azure proves the machine.
func TestReport(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{wire.VerdictPath, wire.BootPath} {
		if err := w.client().Report(t.Context(), path, []byte(`{"a":1}`)); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(w.asked, " "); got != "/v1/verdict proof /v1/boot proof" {
		t.Errorf("asked: %s", got)
	}
}

// A node that stays after all says so by its certificate, and nothing is stopped or
// written down.
func TestBack(t *testing.T) {
	w := newWorld(t)
	w.mustJoin()
	w.kubelet(ourName, time.Now().Add(time.Hour))
	for range 2 {
		if err := w.client().Back(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.asked[len(w.asked)-1]; got != wire.BackPath+" system:node:"+ourName || w.record().State != Joined || !w.there(ReadyFile) {
		t.Errorf("asked %s; %+v", got, w.record())
	}
}

// Others on the machine ask the metadata service too, which has a limit for all.
func TestLeaveWaitsForTheMetadataService(t *testing.T) {
	w := newWorld(t)
	asked := 0
	w.metadata = func(rw http.ResponseWriter, _ *http.Request) bool {
		if asked++; asked == 1 || asked == 3 {
			http.Error(rw, "{}", http.StatusTooManyRequests)
			return true
		}
		return false
	}
	if err := w.client().Left(t.Context(), "Preempt"); err != nil || len(w.waits) != 2 {
		t.Errorf("%v, %d pauses", err, len(w.waits))
	}
	w.metadata = func(rw http.ResponseWriter, _ *http.Request) bool {
		asked++
		http.Error(rw, "{}", http.StatusTooManyRequests)
		return true
	}
	asked = 0
	if err := w.client().Left(t.Context(), "Preempt"); err == nil || asked != metadataTries {
		t.Errorf("%v after %d questions", err, asked)
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
	if err == nil || !strings.Contains(err.Error(), "draining: ") || !strings.Contains(err.Error(), "telling that kubelet.service stands still: ") || len(agent.stopped) != 2 {
		t.Errorf("%v; stopped %q", err, agent.stopped)
	}
	if w.record().State != HasLeft {
		t.Errorf("%+v", w.record())
	}
}

// A systemctl that says what it is told to.
func TestSystemdIsAsked(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "systemctl")
	if err := os.WriteFile(program, []byte(`#!/bin/sh
echo "$*" >>"$0.asked"
case "$*" in
*" stop none.service") echo "Failed to stop none.service: Unit none.service not loaded." >&2; exit 5 ;;
*" stop stuck.service") echo "Job for stuck.service canceled." >&2; exit 1 ;;
*"--value none.service") echo inactive ;;
*"--value kubelet.service") echo deactivating ;;
*list-jobs*) cat "$0.jobs" ;;
esac
`), 0o700); err != nil {
		t.Fatal(err)
	}
	s := systemctl(program)
	for name, ok := range map[string]bool{"kubelet.service": true, "none.service": true, "stuck.service": false} {
		if err := s.Stop(t.Context(), name); (err == nil) != ok {
			t.Errorf("stopping %s: %v", name, err)
		}
	}
	for name, want := range map[string]bool{"kubelet.service": true, "none.service": false} {
		if runs, err := s.Runs(t.Context(), name); err != nil || runs != want {
			t.Errorf("%s runs: %v, %v", name, runs, err)
		}
	}
	for jobs, want := range map[string]bool{
		"":                                  false,
		"12 kubelet.service stop running\n": false,
		"1 shutdown.target start waiting\n2 reboot.target start waiting\n3 kubelet.service stop running\n": false,
		"1 shutdown.target start waiting\n2 poweroff.target start waiting\n":                               true,
		"7 halt.target start waiting\n":      true,
		"7 poweroff.target stop waiting\n":   false,
		"7 xpoweroff.target start waiting\n": false,
	} {
		if err := os.WriteFile(program+".jobs", []byte(jobs), 0o600); err != nil {
			t.Fatal(err)
		}
		if off, err := s.poweringOff(t.Context()); err != nil || off != want {
			t.Errorf("powering off with %q: %v, %v", jobs, off, err)
		}
	}
	if _, err := systemctl(filepath.Join(dir, "none")).poweringOff(t.Context()); err == nil {
		t.Error("no systemctl is no error")
	}
}
