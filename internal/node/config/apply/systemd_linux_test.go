package apply

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/nodeconfig"
)

// TestOnMachine applies configurations to the machine that it runs on, and prints what
// came of them.
func TestOnMachine(t *testing.T) {
	if os.Getenv("ORTET_TEST_MACHINE") == "" {
		return // it is a program of TestMachineUnderSystemd's, and no test
	}
	w := &world{t: t, root: "/", step: func() {}}
	w.store = w.open()
	a := New(Options{Files: w.store, System: Machine(), Now: time.Now, Log: slog.New(slog.DiscardHandler), Deadline: 30 * time.Second})
	show := func(units ...string) {
		for _, u := range units {
			s, err := Machine().Unit(t.Context(), u)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Print(" ", u, " ", s.Active)
		}
		value, err := Machine().Sysctl("net.core.somaxconn")
		fmt.Println(" somaxconn", value, err)
	}
	apply := func(generation int64, c nodeconfig.Config) {
		d := document(generation, c)
		got := a.Apply(t.Context(), d, w.record(d))
		fmt.Printf("%d: has %d, %s %s %s\n", generation, got.Generation, got.State, got.Reason, got.Message)
	}
	unit := func(command, restart string) nodeconfig.Config {
		return nodeconfig.Config{Sysctls: map[string]string{"net.core.somaxconn": "4000"}, Units: []nodeconfig.Unit{
			{Name: "hello.service", Content: "[Service]\nExecStart=" + command + "\nRestart=" + restart + "\n[Install]\nWantedBy=multi-user.target\n", Enabled: yes(), Started: yes()},
			{Name: "cron.service", Started: no()}}}
	}
	once := func(command string) nodeconfig.Config {
		return nodeconfig.Config{Units: []nodeconfig.Unit{{Name: "once.service", Content: "[Service]\nType=oneshot\nExecStart=" + command + "\n", Started: yes()}}}
	}
	// Another network namespace may have another value to begin with.
	if err := Machine().SetSysctl("net.core.somaxconn", "300"); err != nil {
		t.Fatal(err)
	}
	apply(1, unit("/bin/sleep 1000", "always"))
	show("hello.service", "cron.service")
	apply(2, unit("/bin/false", "no"))
	show("hello.service", "cron.service")
	apply(3, once("/bin/touch /run/ran"))
	show("hello.service", "cron.service")
	_, err := os.Stat("/run/ran")
	fmt.Println(" once.service ran", err == nil)
	apply(4, once("/bin/false"))
}

// Units start, fail and go back under a real systemd as they do in the model.
func TestMachineUnderSystemd(t *testing.T) {
	image := os.Getenv("ORTET_LAB_IMAGE")
	if image == "" || os.Getuid() != 0 {
		t.Skip("NOT TESTED under a real systemd: that needs root and the lab's disk image (make lab)")
	}
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--propagation", "private", "testdata/systemd.sh", image, os.Args[0], filepath.Join(t.TempDir(), "vm"), fmt.Sprintf("ortet-apply-%d", os.Getpid()))
	// It cleans up after itself when it is asked to end.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s%s", err, out, said.String())
	}
	const want = `1: has 1, Applied  
 hello.service active cron.service inactive somaxconn 4000 <nil>
2: has 1, Failed Unhealthy hello.service failed
 hello.service active cron.service inactive somaxconn 4000 <nil>
3: has 3, Applied  
 hello.service inactive cron.service active somaxconn 300 <nil>
 once.service ran true
4: has 3, Failed ApplyFailed restart once.service: systemctl restart: exit status 1: Job for once.service failed because the control process exited with error code.
PASS
`
	if got := string(out); got != want {
		t.Errorf("got\n%swant\n%s%s", got, want, said.String())
	}
}
