package join

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

// TestServe is Azure and an admission server in a machine, until that ends.
func TestServe(t *testing.T) {
	if os.Getenv("ORTET_TEST_WORLD") == "" {
		return // it is a program of TestUnitsUnderSystemd's, and no test
	}
	w := newWorld(t)
	w.root = "/"
	facts, err := os.OpenFile("/var/log/facts", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	fact := func(text string) {
		if _, err := facts.WriteString(text + "\n"); err != nil {
			t.Error(err)
		}
	}
	// Whether the kubelet runs decides what may be said when.
	running := func() string {
		if out, err := exec.Command("pidof", "sleep").Output(); err == nil && len(out) > 0 {
			return "while the kubelet runs"
		}
		return "while it does not"
	}
	w.refuse = func(path string) *wire.Refusal {
		// What of it is refused; nothing in it: all.
		only, err := os.ReadFile("/etc/ortet/refuse")
		if err == nil && (len(only) == 0 || strings.TrimSpace(string(only)) == path) {
			fact("refused " + path)
			return &wire.Refusal{Reason: "NotYet", Message: "not yet"}
		}
		if path == wire.LeavePath || path == wire.LeftPath || path == wire.JoinPath {
			fact(path + " " + running())
		}
		return nil
	}
	w.metadata = func(rw http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.URL.Path == "/metadata/instance/compute/name":
			_, _ = io.WriteString(rw, "pool1_10")
		case r.URL.Path != "/metadata/scheduledevents":
			return false
		case r.Method == http.MethodPost:
			fact("acknowledged " + running())
		default:
			document, err := os.ReadFile("/etc/ortet/scheduled")
			if err != nil {
				document = []byte(`{"DocumentIncarnation":1,"Events":[]}`)
			}
			_, _ = rw.Write(document)
		}
		return true
	}
	// What a kubelet gets for its token.
	w.grant = func(*wire.Join) { w.kubelet(ourName, time.Now().Add(time.Hour)) }
	azure, err := net.Listen("tcp", "169.254.169.254:80")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(w.settings)
	if err != nil {
		t.Fatal(err)
	}
	w.write(SettingsFile, string(text))
	w.write("/run/world", "")
	server := &http.Server{Handler: http.HandlerFunc(w.serveAzure), ReadHeaderTimeout: time.Minute}
	t.Error(server.Serve(azure))
}

// The shipped units under a real systemd: who waits for whom, what a restart and a
// power-off do.
func TestUnitsUnderSystemd(t *testing.T) {
	image := os.Getenv("ORTET_LAB_IMAGE")
	if image == "" || os.Getuid() != 0 {
		t.Skip("NOT TESTED under a real systemd: that needs root and the lab's disk image (make lab)")
	}
	work := t.TempDir()
	agent := filepath.Join(work, "ortet-node")
	if out, err := exec.Command("go", "build", "-o", agent, "../../../cmd/ortet-node").CombinedOutput(); err != nil {
		t.Fatalf("building the agent: %v: %s", err, out)
	}
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--propagation", "private", "testdata/systemd.sh", image, agent, os.Args[0], filepath.Join(work, "vm"), fmt.Sprintf("ortet-join-%d", os.Getpid()))
	// It cleans up after itself when it is asked to end.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s%s", err, out, said.String())
	}
	want := `refused: join activating, kubelet inactive, sysinit active
admitted: join inactive, multi-user active
files: etc/kubernetes/bootstrap-kubelet.conf 600 var/lib/ortet/identity.json 600 
back: join inactive
/v1/join while it does not
kubelet --hostname-override=` + ourName + ` --provider-id=azure://` + ourID + `
restart
kubelet --hostname-override=` + ourName + ` --provider-id=azure://` + ourID + `
power-off
/v1/leave while the kubelet runs
/v1/left while it does not
"state": "left"
evicted: kubelet inactive, join failed
started again: kubelet inactive, join activating, admitted 0 times
released: join inactive
/v1/leave while it does not
/v1/left while it does not
acknowledged while it does not
/v1/join while it does not
kubelet --hostname-override=` + ourName + ` --provider-id=azure://` + ourID + `
once more: admitted 1 times
without a certificate: admitted 2 times
wrong settings: events failed, started again 0 times
no server: events active, without an admission server
`
	if got := string(out); got != want {
		t.Errorf("got\n%swant\n%s%s", got, want, strings.TrimSpace(said.String()))
	}
}
