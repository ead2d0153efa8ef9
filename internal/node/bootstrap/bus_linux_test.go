package bootstrap

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/godbus/dbus/v5"

	"github.com/ortet/ortet/internal/node/systemd"
	"github.com/ortet/ortet/internal/wire"
)

// onBus exports what the watch asks of systemd on a real message bus.
type onBus struct{ conn *dbus.Conn }

func (onBus) Subscribe() *dbus.Error { return nil }

func (onBus) LoadUnit(name string) (dbus.ObjectPath, *dbus.Error) {
	return systemd.ObjectPath(name), nil
}

// properties of one unit.
type properties struct{ values map[string]any }

func (p properties) Get(_, name string) (dbus.Variant, *dbus.Error) {
	if v, ok := p.values[name]; ok {
		return dbus.MakeVariant(v), nil
	}
	return dbus.Variant{}, dbus.MakeFailedError(fmt.Errorf("no %s", name))
}

// The way to systemd by the message bus, with a real one: greeting, match rules,
// signals.
func TestUnitsOverTheMessageBus(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("NOT RUN: there is no dbus-daemon")
	}
	r := newRoot(t)
	r.folder(filepath.Dir(busSocket))
	config := fmt.Sprintf(`<busconfig><type>session</type><listen>unix:path=%s</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>`, r.path(busSocket))
	if err := os.WriteFile(r.path("/bus.conf"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "--config-file="+r.path("/bus.conf"), "--nofork", "--print-address=1")
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
	conn, err := dbus.Connect("unix:path=" + r.path(busSocket))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	path := systemd.ObjectPath("app.service")
	for _, err := range []error{
		conn.Export(onBus{conn}, systemd.Object, systemd.Manager),
		conn.Export(properties{map[string]any{"LoadState": "loaded", "ActiveState": "activating", "SubState": "start"}}, path, systemd.Properties),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.RequestName(systemd.Name, dbus.NameFlagDoNotQueue); err != nil {
		t.Fatal(err)
	}
	o := r.options()
	o.Units, o.Sentinel = []string{"app.service"}, NoSentinel
	v := r.withUnits(o, "", func() {
		if err := conn.Export(properties{running(0)}, path, systemd.Properties); err != nil {
			t.Error(err)
		}
		changed := map[string]dbus.Variant{"ActiveState": dbus.MakeVariant("active")}
		if err := conn.Emit(path, systemd.Properties+".PropertiesChanged", systemd.Unit, changed, []string{}); err != nil {
			t.Error(err)
		}
	})
	if v.Outcome != wire.Succeeded {
		t.Errorf("%+v", v)
	}
}
