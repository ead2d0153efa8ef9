package apply_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/node/config/apply"
)

// program puts a shell script of this name before all others.
func program(t *testing.T, name, text string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestUnitStateIsOfSystemctl(t *testing.T) {
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Skip(err)
	}
	up, _ := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
	entered := strconv.FormatInt(int64((up-5)*1e6), 10) // 5 s ago
	for name, c := range map[string]struct {
		properties string
		want       apply.UnitState
		since      bool
	}{
		"service": {"ActiveState=active\nNRestarts=3\nType=simple\nResult=success\nActiveEnterTimestampMonotonic=" + entered, apply.UnitState{Active: "active", Restarts: 3}, true},
		"oneshot": {"ActiveState=inactive\nNRestarts=0\nType=oneshot\nResult=success", apply.UnitState{Active: "inactive", Done: true}, false},
		"stopped": {"ActiveState=inactive\nType=simple\nResult=success\nActiveEnterTimestampMonotonic=0", apply.UnitState{Active: "inactive"}, false},
		"timer":   {"ActiveState=active\nResult=success\nActiveEnterTimestampMonotonic=0", apply.UnitState{Active: "active"}, false},
	} {
		program(t, "systemctl", "cat <<'E'\n"+c.properties+"\nE\n")
		got, err := apply.Machine().Unit(t.Context(), "x.service")
		if ago := time.Since(got.Since); err != nil || c.since != !got.Since.IsZero() || c.since && (ago < 4*time.Second || ago > time.Minute) {
			t.Errorf("%s: %v: since %s", name, err, got.Since)
		}
		if got.Since = (time.Time{}); got != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestUnitsAreVerifiedByOlderSystemd(t *testing.T) {
	program(t, "systemd-analyze", `for a; do case $a in --recursive*) echo "unrecognized option '$a'" >&2; exit 1;; esac; done
echo "$SYSTEMD_UNIT_PATH/x.service:1: bad" >&2; exit 1
`)
	got, err := apply.Machine().Verify(t.Context(), "/stage", []string{"x.service"})
	if err != nil || len(got) != 1 || got[0] != "/stage:/x.service:1: bad" {
		t.Error(got, err)
	}
}

func TestFailedProgramsSayWhy(t *testing.T) {
	program(t, "systemctl", "echo \"Job for x.service failed.\" >&2; echo \"See status\" >&2\nexit 1\n")
	err := apply.Machine().Control(t.Context(), apply.Restart, "x.service", true)
	if err == nil || !strings.Contains(err.Error(), "systemctl restart: exit status 1") || !strings.Contains(err.Error(), "Job for x.service failed.") || strings.Contains(err.Error(), "See") {
		t.Error(err)
	}
}

// A unit that systemd starts again and again: what its last run logged is the cause.
func TestJournalIsOfTheLastRun(t *testing.T) {
	const started, ended = `{"_PID":"1","MESSAGE":"Started kubelet.service - Kubernetes node agent."}`, `{"_PID":"1","MESSAGE":"kubelet.service: Main process exited, code=exited, status=1/FAILURE"}
{"_PID":"1","MESSAGE":"kubelet.service: Failed with result 'exit-code'."}`
	for name, c := range map[string]struct{ journal, want string }{
		"restarts":          {started + "\n" + `{"_PID":"7","MESSAGE":"first"}` + "\n" + ended + "\n" + started + "\n" + `{"_PID":"9","MESSAGE":"cannot read"}` + "\n" + `{"_PID":"9","MESSAGE":"end"}` + "\n" + ended + "\n" + started, "cannot read|end"},
		"systemd's refusal": {`{"_PID":"7","MESSAGE":"well"}` + "\n" + ended + "\n" + `{"_PID":"1","MESSAGE":"a.timer: Refusing to start, unit a.service to trigger not loaded."}`, "a.timer: Refusing to start, unit a.service to trigger not loaded."},
		"nothing else":      {ended, "kubelet.service: Main process exited, code=exited, status=1/FAILURE|kubelet.service: Failed with result 'exit-code'."},
		"bytes":             {`{"_PID":"7","MESSAGE":[27,91]}`, ""},
	} {
		program(t, "journalctl", "[ \"$1\" = --sync ] || cat <<'END'\n"+c.journal+"\nEND\n")
		if got := strings.Join(apply.Machine().Journal(t.Context(), "kubelet.service"), "|"); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestSysctlIsTheKernels(t *testing.T) {
	for _, key := range []string{"kernel.ostype", "kernel/ostype"} {
		if got, err := apply.Machine().Sysctl(key); err != nil || got != "Linux" {
			t.Errorf("%s: %q %v", key, got, err)
		}
	}
}

func TestHealthz(t *testing.T) {
	status := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			w.WriteHeader(status)
		}
	}))
	defer s.Close()
	port := s.Listener.Addr().(*net.TCPAddr).Port
	if err := apply.Machine().Healthz(t.Context(), port); err != nil {
		t.Error(err)
	}
	status = http.StatusInternalServerError
	if err := apply.Machine().Healthz(t.Context(), port); err == nil || !strings.Contains(err.Error(), "500") {
		t.Error(err)
	}
}
