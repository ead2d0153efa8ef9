//go:build e2e && linux

package lab

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/wire"
)

// pairs is how often a machine boots with the collector, and as often without. Once
// shows that it does its work; what it costs is a matter of many.
var pairs = flag.Int("pairs", 1, "boots with the collector, and as many without, in TestCollectorIsInNobodysWay")

// TestCollectorIsInNobodysWay boots a machine with the collector's unit and
// without it, in turns, and prints how much later the API server had its node
// Ready, beside how much boots of one kind differ; and what collecting costs.
// Only that the collector did its work, and when, can fail: a clock cannot.
func TestCollectorIsInNobodysWay(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	line := newTimeline(t)
	s := newSite(ctx, t, line, "collector", bakeBootImages(ctx, t, "ortet-wait.service", "ortet-report.service"))
	line.begin("a machine's first boot, with the collector")
	c := computer("bootnode1", 1, s.data)
	if err := s.machines.CreateVolume(ctx, c.OSDisk, azsim.Source{Platform: imageBaked}); err != nil {
		t.Fatal(err)
	}
	s.boot(ctx, t, c)
	s.checkKept(ctx, t, c)

	c.Provision = false
	times := map[bool][]float64{}
	for i := range 2 * *pairs {
		with := i%2 == 0
		line.begin(fmt.Sprintf("boot %d, with the collector: %v", i+1, with))
		s.sh(ctx, t, c, "systemctl "+map[bool]string{true: "enable", false: "disable"}[with]+" --quiet ortet-report.service")
		if err := s.machines.Shutdown(ctx, c.ID, true); err != nil {
			t.Fatal(err)
		}
		times[with] = append(times[with], s.readyAfter(ctx, t, c))
		if with {
			s.checkKept(ctx, t, c)
		} else {
			s.sh(ctx, t, c, "timeout 90 systemctl is-system-running --wait >/dev/null; true")
		}
	}
	line.begin("what collecting costs")
	figures := s.costs(ctx, t, c)
	later := (middle(times[true]) - middle(times[false])) * 1000
	noise := (spread(times[true]) + spread(times[false])) / 2 * 1000
	t.Logf("Ready after the start of systemd, in seconds: with %.3f, without %.3f", times[true], times[false])
	if *pairs > 2 { // of fewer nothing can be said
		t.Logf("boot-collect/ready-later  %.4g  ms  %.4g  %s  (the bound is what boots of one kind differ by)",
			later, noise, map[bool]string{true: "ok", false: "over"}[later <= noise])
	}
	t.Logf("\n%s", figures)
	line.print()
}

// middle is the median, spread how far boots of one kind lie apart.
func middle(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	n := len(all)
	return (all[(n-1)/2] + all[n/2]) / 2
}

func spread(all []float64) float64 { return slices.Max(all) - slices.Min(all) }

// readyAfter boots a machine, and gives how long after the start of its systemd
// the API server had its node Ready, in seconds. A machine shares the host's
// kernel, and with it the monotonic clock.
func (s *site) readyAfter(ctx context.Context, t *testing.T, c azsim.Computer) float64 {
	t.Helper()
	before, err := s.client.CoreV1().Nodes().Get(ctx, c.HostName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + c.HostName, ResourceVersion: before.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := s.machines.Boot(ctx, c); err != nil {
		t.Fatal(err)
	}
	for {
		select {
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		case e, ok := <-w.ResultChan():
			node, is := e.Object.(*corev1.Node)
			if !ok || !is {
				t.Fatalf("the watch ended: %+v", e)
			}
			if !ready(*node) || node.Status.NodeInfo.BootID == before.Status.NodeInfo.BootID {
				continue
			}
			var now unix.Timespec
			if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
				t.Fatal(err)
			}
			began, err := strconv.ParseInt(s.sh(ctx, t, c, "systemctl show -P UserspaceTimestampMonotonic"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return float64(now.Nano()/1000-began) / 1e6
		}
	}
}

// checkKept waits until the collector's unit has done its work, and looks whether
// that began when the boot was over.
func (s *site) checkKept(ctx context.Context, t *testing.T, c azsim.Computer) {
	t.Helper()
	path := filepath.Join("/var/lib/ortet/boots", s.sh(ctx, t, c, "cat /proc/sys/kernel/random/boot_id")+".json")
	poll(ctx, t, "the collector's report", 90*time.Second, func(ctx context.Context) (bool, error) {
		out, err := s.machines.Exec(ctx, c.ID, nil, "systemctl", "is-active", "ortet-report.service")
		return strings.TrimSpace(string(out)) == "inactive", ignoreExit(err)
	})
	r, err := wire.ParseBootReport([]byte(s.sh(ctx, t, c, "cat "+path)))
	if err != nil {
		t.Fatalf("%v: %s", err, s.sh(ctx, t, c, "journalctl -b --no-pager -u ortet-report -u ortet-wait; ls -la /var/lib/ortet /var/lib/ortet/boots"))
	}
	if r.System.Finish == 0 {
		t.Error("it was collected before the start was done")
	}
	if u := slices.IndexFunc(r.Units, func(u wire.BootUnit) bool { return u.Name == "kubelet.service" }); u < 0 {
		t.Error("the kubelet is not in it")
	}
	if waiting := s.sh(ctx, t, c, "systemctl show -P Before ortet-report.service"); waiting != "shutdown.target" {
		t.Errorf("%s are ordered after the collector", waiting)
	}
}

// ignoreExit: systemctl says by its exit code too that a unit is not active.
func ignoreExit(err error) error {
	if err != nil && strings.Contains(err.Error(), "exit status") {
		return nil
	}
	return err
}

var costLine = regexp.MustCompile(`msg=cost cpu=(\S+) childrensCPU=(\S+) peak=(\d+) childrensPeak=(\d+)`)

// costs are `make bench BENCH=boot-collect`'s lines, of a machine.
func (s *site) costs(ctx context.Context, t *testing.T, c azsim.Computer) string {
	t.Helper()
	out := s.sh(ctx, t, c, `for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do ortet-node report --verbose -o json --out none 2>&1 >/dev/null; done`)
	var cpu, programs, peak []float64
	for _, m := range costLine.FindAllStringSubmatch(out, -1) {
		var d [2]time.Duration
		var n [2]int64
		for i := range 2 {
			var err error
			if d[i], err = time.ParseDuration(m[1+i]); err != nil {
				t.Fatal(err)
			}
			if n[i], err = strconv.ParseInt(m[3+i], 10, 64); err != nil {
				t.Fatal(err)
			}
		}
		cpu, programs = append(cpu, (d[0]+d[1]).Seconds()*1000), append(programs, d[1].Seconds()*1000)
		peak = append(peak, float64(n[0]+n[1])/(1<<20))
	}
	if len(cpu) != 15 {
		t.Fatalf("%d costs are told: %s", len(cpu), out)
	}
	verdict := func(v, bound float64) string { return map[bool]string{true: "ok", false: "over"}[v <= bound] }
	return fmt.Sprintf("boot-collect/cpu             %6.4g  ms   150  %s\nboot-collect/cpu-programs    %6.4g  ms   -    -\nboot-collect/resident        %6.4g  MiB  25   %s",
		middle(cpu), verdict(middle(cpu), 150), middle(programs), slices.Max(peak), verdict(slices.Max(peak), 25))
}
