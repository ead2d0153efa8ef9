//go:build e2e && linux

package lab

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/azsim/machine"
	rootfs "github.com/ortet/ortet/hack/lab"
	"github.com/ortet/ortet/internal/wire"
)

var (
	rounds = flag.Int("rounds", 0, "boots of each kind in TestCloneBoot; 0 leaves it out")
	cores  = flag.Int("cores", 0, "processors that TestCloneBoot's machines have together; 0: all of the host")
)

// floorGoal is how many floors a tuned clone may take from its first process to Ready.
const floorGoal = 1.5

// A bootKind is one way to boot a node: from a copy of a volume, with custom data.
type bootKind struct {
	name string
	from azsim.Source
	data string
}

// A bootSample is one boot. The first five are seconds.
type bootSample struct {
	cloud   float64 // from the request to the guest's first process
	ours    float64 // from there to the kubelet's start
	kubelet float64 // from there to Ready, as a watch shows it
	pod     float64 // from there until a first pod with pod network runs
	cpu     float64 // processor time of the machine until Ready
	load    float64 // of the host, before it
}

func (b bootSample) guest() float64 { return b.ours + b.kubelet }

// TestCloneBoot is make bench BENCH=clone-boot: it boots machines of each kind in turns, each from
// a fresh volume, and prints a table and figures. That a clock is over its bound fails no test.
func TestCloneBoot(t *testing.T) {
	if *rounds < 1 {
		t.Skip("NOT RUN: takes half an hour; make bench BENCH=clone-boot runs it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
	defer cancel()
	line := newTimeline(t)
	s := newSite(ctx, t, line, "cloneboot", func(s *site, disk string) map[string]string {
		agent, baked := filepath.Join(s.dir, "agent", "ortet-node"), filepath.Join(s.dir, "baked.raw")
		s.run(ctx, t, filepath.Join("hack", "agent.sh"), agent)
		tree := filepath.Join(s.dir, "tree")
		plant(t, tree, map[string]string{"usr/local/bin/ortet-node": agent}, nil)
		if err := rootfs.Overlay(ctx, s.checkout, disk, tree, baked); err != nil {
			t.Fatal(err)
		}
		return map[string]string{imagePlatform: disk, imageBaked: baked}
	})
	kinds := s.bootKinds(ctx, t, line)
	all := map[string][]bootSample{}
	for round := range *rounds {
		order := slices.Clone(kinds)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		line.begin(fmt.Sprintf("round %d of %d", round+1, *rounds))
		for _, k := range order {
			b := s.sample(ctx, t, k, round)
			t.Logf("%-8s cloud %.2f, ours %.2f, kubelet %.2f, first pod %.2f, CPU %.1f s; load %.1f", k.name, b.cloud, b.ours, b.kubelet, b.pod, b.cpu, b.load)
			all[k.name] = append(all[k.name], b)
		}
	}
	line.print()
	fmt.Print(bootTable(kinds, all))
	fmt.Print(bootFigures(all))
}

// imagePlatform is the image as the platform offers it.
const imagePlatform = "platform"

// bootKinds makes the volumes that machines are booted from: of one donor, which was booted as
// generic machines are, and ran the first pod.
func (s *site) bootKinds(ctx context.Context, t *testing.T, line *timeline) []bootKind {
	t.Helper()
	line.begin("a bare image, a mirror, a registry")
	s.weigh(t)
	bench := computer("bench", 1, "#cloud-config\n")
	if err := s.machines.CreateVolume(ctx, bench.OSDisk, azsim.Source{Platform: imageBaked}); err != nil {
		t.Fatal(err)
	}
	if err := s.machines.Boot(ctx, bench); err != nil {
		t.Fatal(err)
	}
	s.supply(ctx, t, s.sh(ctx, t, bench, "awk '/^deb /{print $2; exit}' /etc/apt/sources.list"))
	s.data = strings.NewReplacer(rootfs.PauseImage, supplyRegistry+"/pause:1", "\nruncmd:", `
- path: /etc/containerd/certs.d/`+supplyRegistry+`/hosts.toml
  content: |
    [host."http://`+supplyRegistry+`"]
runcmd:`).Replace(s.data)
	generic := bootKind{"generic", azsim.Source{Volume: "/disks/bare"}, s.dataWith(t, genericCommands()...)}
	s.edit(ctx, t, bench, generic.from.Volume, azsim.Source{Platform: imagePlatform}, `
		chroot /mnt dpkg --purge --force-depends `+strings.Join(genericPackages(), " ")+`
		rm -rf /mnt/var/lib/containerd /mnt/usr/local/bin/kubelet`)

	line.begin("a donor")
	donor := computer("donor", 2, generic.data)
	if err := s.machines.CreateVolume(ctx, donor.OSDisk, generic.from); err != nil {
		t.Fatal(err)
	}
	s.boot(ctx, t, donor)
	s.firstPod(ctx, t, donor.HostName, "first")
	if err := s.machines.Shutdown(ctx, donor.ID, true); err != nil {
		t.Fatal(err)
	}

	line.begin("its clones' disks")
	s.generalize(ctx, t, "/disks/clone", donor, bench, "--bootstrap baked")
	s.generalize(ctx, t, "/disks/keep", donor, bench, "--bootstrap keep")
	s.edit(ctx, t, bench, "/disks/floor", azsim.Source{Volume: "/disks/clone"}, `
		for u in cloud-init-local cloud-init cloud-config cloud-final; do ln -sfn /dev/null /mnt/etc/systemd/system/$u.service; done
		echo bench-floor >/mnt/etc/hostname`)
	kinds := []bootKind{
		generic,
		{"keep", azsim.Source{Volume: "/disks/keep"}, generic.data},
		{"clone", azsim.Source{Volume: "/disks/clone"}, "#cloud-config\n"},
	}
	if s.sh(ctx, t, bench, "ortet-node generalize --help 2>&1 | grep -c -e '-tune ' || true") != "0" {
		s.generalize(ctx, t, "/disks/tuned", donor, bench, "--bootstrap baked --tune recommended")
		prepared := donor
		prepared.OSDisk = "/disks/prepared"
		s.edit(ctx, t, bench, prepared.OSDisk, azsim.Source{Volume: donor.OSDisk}, "cat >/mnt/usr/lib/systemd/system/node-preparation.service <<'END'\n"+earlyPreparation+"END")
		s.generalize(ctx, t, "/disks/early", prepared, bench, "--bootstrap baked --tune "+strings.Join(wire.Tunings(), ","))
		kinds = append(kinds, bootKind{"tuned", azsim.Source{Volume: "/disks/tuned"}, "#cloud-config\n"}, bootKind{"early", azsim.Source{Volume: "/disks/early"}, "#cloud-config\n"})
	} else {
		fmt.Println("clone-boot: tuned NOT MEASURED: this ortet-node has no generalize --tune")
	}
	for _, c := range []azsim.Computer{donor, bench} {
		if err := s.machines.Remove(ctx, c.ID); err != nil {
			t.Fatal(err)
		}
	}
	s.forget(ctx, t, donor.HostName)
	return append(kinds, bootKind{"floor", azsim.Source{Volume: "/disks/floor"}, "#cloud-config\n"})
}

// sample boots a machine of a kind, and removes it.
func (s *site) sample(ctx context.Context, t *testing.T, k bootKind, round int) (b bootSample) {
	t.Helper()
	c := computer("bench-"+k.name, 3, k.data)
	if err := s.machines.CreateVolume(ctx, c.OSDisk, k.from); err != nil {
		t.Fatal(err)
	}
	// A volume may share its bytes with another until it boots: that copy is no part of a boot.
	file := s.machines.VolumeFile(c.OSDisk)
	s.run(ctx, t, "cp", "--reflink=auto", "--sparse=always", file, file+".own")
	if err := os.Rename(file+".own", file); err != nil {
		t.Fatal(err)
	}
	unix.Sync()
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		b.load, _ = strconv.ParseFloat(strings.Fields(string(text))[0], 64)
	}
	nodes, err := s.client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + c.HostName})
	if err != nil {
		t.Fatal(err)
	}
	defer nodes.Stop()
	asked, done := monotonic(t), make(chan error, 1)
	go func() { done <- s.machines.Boot(ctx, c) }()
	s.await(ctx, t, c, nodes, func(e watch.Event) bool {
		node, is := e.Object.(*corev1.Node)
		return is && ready(*node)
	})
	up := monotonic(t)
	b.cpu = s.cpu(t, c)
	s.firstPod(ctx, t, c.HostName, fmt.Sprintf("first-%s-%d", k.name, round))
	b.pod = monotonic(t) - up
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var at [2]float64
	for i, ask := range []string{"UserspaceTimestampMonotonic", "ExecMainStartTimestampMonotonic kubelet.service"} {
		micros, err := strconv.ParseFloat(s.sh(ctx, t, c, "systemctl show -P "+ask), 64)
		if err != nil {
			t.Fatal(err)
		}
		at[i] = micros / 1e6
	}
	b.cloud, b.ours, b.kubelet = at[0]-asked, at[1]-at[0], up-at[1]
	if b.cloud < 0 || b.ours <= 0 || b.kubelet <= 0 {
		t.Fatalf("%s: the kubelet started again after Ready: %+v", k.name, b)
	}
	if err := s.machines.Remove(ctx, c.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.machines.DeleteVolume(ctx, c.OSDisk); err != nil {
		t.Fatal(err)
	}
	s.forget(ctx, t, c.HostName)
	return b
}

// await ends when an event is what is waited for; the machine's console is in the failure.
func (s *site) await(ctx context.Context, t *testing.T, c azsim.Computer, w watch.Interface, is func(watch.Event) bool) {
	t.Helper()
	limit := time.After(4 * time.Minute)
	for {
		select {
		case e, open := <-w.ResultChan():
			if !open || e.Type == watch.Error {
				t.Fatalf("the watch ended: %+v", e.Object)
			}
			if is(e) {
				return
			}
		case <-limit:
			console, err := s.machines.Console(ctx, c.ID)
			t.Fatalf("%s is not Ready after 4 minutes (%v): %s", c.HostName, err, console[max(0, len(console)-3000):])
		}
	}
}

// firstPod has a pod with pod network run on a node.
func (s *site) firstPod(ctx context.Context, t *testing.T, node, name string) {
	t.Helper()
	pods := s.client.CoreV1().Pods("default")
	w, err := pods.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if _, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		NodeName:    node,
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers:  []corev1.Container{{Name: "web", Image: firstImage, ImagePullPolicy: corev1.PullIfNotPresent}},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var last corev1.PodStatus
	for limit := time.After(4 * time.Minute); last.Phase != corev1.PodRunning || last.PodIP == ""; {
		select {
		case e, open := <-w.ResultChan():
			p, is := e.Object.(*corev1.Pod)
			if !open || !is {
				t.Fatalf("the watch of the pod %s ended: %+v", name, e.Object)
			}
			last = p.Status
		case <-limit:
			t.Fatalf("the pod %s does not run after 4 minutes: %+v", name, last.ContainerStatuses)
		}
	}
}

// forget deletes the Node and the pods of a machine that is gone.
func (s *site) forget(ctx context.Context, t *testing.T, node string) {
	t.Helper()
	at := metav1.ListOptions{FieldSelector: "spec.nodeName=" + node}
	if err := s.client.CoreV1().Pods("default").DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, at); err != nil {
		t.Fatal(err)
	}
	if err := s.client.CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{}); ignoreNotFound(err) != nil {
		t.Fatal(err)
	}
}

func monotonic(t *testing.T) float64 {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	return float64(now.Nano()) / 1e9
}

// weigh has the machines' control group count 256 times as much as a process of the host: with
// other work on the host, a whole machine would count as one process. With -cores their time is
// limited, too; they still see the host's processors.
func (s *site) weigh(t *testing.T) {
	t.Helper()
	group := machine.Prefix(filepath.Join(s.dir, "machine"))
	// A short period, so that a machine over its share is not stopped for long.
	const period = 10_000
	v1, v2 := map[string]string{"cpu.shares": "262144"}, map[string]string{"cpu.weight": "10000"}
	if *cores > 0 {
		v1["cpu.cfs_period_us"], v1["cpu.cfs_quota_us"] = strconv.Itoa(period), strconv.Itoa(*cores*period)
		v2["cpu.max"] = fmt.Sprint(*cores*period, period)
	}
	for dir, files := range map[string]map[string]string{"/sys/fs/cgroup/cpu": v1, "/sys/fs/cgroup": v2} {
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err != nil {
			continue // of the other version
		}
		if err := os.MkdirAll(filepath.Join(dir, group), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, file := range slices.Sorted(maps.Keys(files)) { // the period before the quota, which is a part of it
			if err := os.WriteFile(filepath.Join(dir, group, file), []byte(files[file]), 0o644); err != nil {
				t.Fatalf("give the machines their share of the CPU: %v", err)
			}
		}
	}
}

// cpu is a machine's processor time so far, in seconds; 0 if the host does not count it.
func (s *site) cpu(t *testing.T, c azsim.Computer) float64 {
	t.Helper()
	address, err := s.machines.Address(c.ID)
	if err != nil {
		t.Fatal(err)
	}
	group := filepath.Join(machine.Prefix(filepath.Join(s.dir, "machine")), address.String()[strings.LastIndex(address.String(), ".")+1:])
	if text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/cpuacct", group, "cpuacct.usage")); err == nil {
		nanos, _ := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
		return nanos / 1e9
	}
	text, _ := os.ReadFile(filepath.Join("/sys/fs/cgroup", group, "cpu.stat"))
	usage, _, _ := strings.Cut(strings.TrimPrefix(string(text), "usage_usec "), "\n")
	micros, _ := strconv.ParseFloat(usage, 64)
	return micros / 1e6
}

func column(of []bootSample, value func(bootSample) float64) (out []float64) {
	for _, b := range of {
		out = append(out, value(b))
	}
	return out
}

// bootTable has a row for each kind, 80 columns at most.
func bootTable(kinds []bootKind, all map[string][]bootSample) string {
	var out strings.Builder
	var load []float64
	for _, of := range all {
		load = append(load, column(of, func(b bootSample) float64 { return b.load })...)
	}
	has := strconv.Itoa(runtime.NumCPU())
	if *cores > 0 {
		has = fmt.Sprintf("machines have %d of its %s", *cores, has)
	}
	fmt.Fprintf(&out, "\nSeconds: median of %d boots, and how far apart these lie.\nLoad of the host %.1f to %.1f, %s cores.\n\n%-7s %10s %11s %10s %11s %11s %5s %6s\n", len(all["floor"]),
		slices.Min(load), slices.Max(load), has, "", "cloud", "ours", "kubelet", "ours+kub.", "first pod", "CPU", "/floor")
	floor := middle(column(all["floor"], bootSample.guest))
	for _, k := range kinds {
		of := all[k.name]
		pair := func(width int, value func(bootSample) float64) {
			c := column(of, value)
			fmt.Fprintf(&out, " %*.2f %4.2f", width-5, middle(c), spread(c))
		}
		fmt.Fprintf(&out, "%-7s", k.name)
		pair(10, func(b bootSample) float64 { return b.cloud })
		pair(11, func(b bootSample) float64 { return b.ours })
		pair(10, func(b bootSample) float64 { return b.kubelet })
		pair(11, bootSample.guest)
		pair(11, func(b bootSample) float64 { return b.pod })
		fmt.Fprintf(&out, " %5.1f %6.2f\n", middle(column(of, func(b bootSample) float64 { return b.cpu })), middle(column(of, bootSample.guest))/floor)
	}
	return out.String() + "\n"
}

// bootFigures are the lines of make bench, with the spread beside the unit. Spreads of ratios are
// those of the rounds' own.
func bootFigures(all map[string][]bootSample) string {
	var out strings.Builder
	line := func(name string, value, apart float64, unit, bound, verdict string) {
		fmt.Fprintf(&out, "clone-boot/%s\t%.4g\t%s (spread %.2g)\t%s\t%s\n", name, value, unit, apart, bound, verdict)
	}
	ratio := func(name, a, b string, bound float64) {
		var each []float64
		for i := range all[a] {
			each = append(each, all[a][i].guest()/all[b][i].guest())
		}
		value, limit, verdict := middle(column(all[a], bootSample.guest))/middle(column(all[b], bootSample.guest)), "-", "-"
		if bound > 0 {
			limit, verdict = fmt.Sprint(bound), map[bool]string{true: "ok", false: "over"}[value <= bound]
		}
		line(name, value, spread(each), "x", limit, verdict)
	}
	for _, kind := range []string{"generic", "clone", "tuned", "early", "floor"} {
		if of := all[kind]; len(of) > 0 {
			up, cpu, pod := column(of, bootSample.guest), column(of, func(b bootSample) float64 { return b.cpu }), column(of, func(b bootSample) float64 { return b.pod })
			line(kind+"-ready", middle(up), spread(up), "s", "-", "-")
			line(kind+"-cpu", middle(cpu), spread(cpu), "s", "-", "-")
			line(kind+"-first-pod", middle(pod), spread(pod), "s", "-", "-")
		}
	}
	ratio("clone-over-floor", "clone", "floor", 0)
	ratio("generic-over-clone", "generic", "clone", 0)
	if len(all["tuned"]) > 0 {
		ratio("tuned-over-floor", "tuned", "floor", floorGoal)
		ratio("generic-over-tuned", "generic", "tuned", 0)
		ratio("early-over-floor", "early", "floor", floorGoal)
	}
	return out.String()
}
