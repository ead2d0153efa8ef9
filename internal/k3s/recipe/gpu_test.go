package recipe_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/boots/timeline/source"
	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/wire"
)

const driverStatus = "/var/lib/waagent/Microsoft.HpcCompute.NvidiaGpuDriverLinux-1.6.5.0/status/0.status"

// newGPUAgent is an agent whose driver comes this way. modprobe loads what file "built" stands
// for, and the packages of the toolkit bring its runtime.
func newGPUAgent(t *testing.T, driver string) *world {
	t.Helper()
	w := newWorld(t)
	w.files["/toolkit.deb"] = "a package"
	w.install("agents", func(c *k3s.Cluster) {
		c.Spec.Artifacts.ContainerToolkit = []k3s.Artifact{{URL: w.url + "/toolkit.deb", SHA256: sha256Of("a package")}}
		c.Spec.Pools[0].GPU = &k3s.GPU{Driver: driver}
		c.SetDefaults()
	})
	w.tags[recipe.TagCAHash] = caHash
	w.program(filepath.Join(w.programs, "modprobe"), `[ -e "$ORTET_ROOT/built" ] || { echo "FATAL: Module $1 not found" >&2; exit 1; }
mkdir -p "$ORTET_ROOT/proc/driver/nvidia" && : >"$ORTET_ROOT/proc/driver/nvidia/version"; echo "modprobe $*" >>"$ORTET_ROOT/commands"`)
	w.program(filepath.Join(w.programs, "dpkg"), `echo "dpkg $*" >>"$ORTET_ROOT/commands"`)
	w.program(filepath.Join(w.programs, "apt-get"), `echo "apt-get $*" >>"$ORTET_ROOT/commands"
printf '#!/bin/sh\n' >"`+w.programs+`/nvidia-container-runtime"; chmod +x "`+w.programs+`/nvidia-container-runtime"`)
	return w
}

// reports is what the Azure agent has of the driver's extension.
func (w *world) reports(status, message string) {
	text, err := json.Marshal([]object{{"status": object{"status": status, "formattedMessage": object{"message": message}}}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.put(w.root+driverStatus, string(text), 0o600)
}

func (w *world) joins() bool {
	_, err := os.Stat(w.root + "/etc/ortet/join.json")
	return err == nil
}

// bootUntil runs boot.py until it says something, and kills it, as a restart or an eviction does.
func (w *world) bootUntil(says string) {
	w.t.Helper()
	log := filepath.Join(w.t.TempDir(), "log")
	var err error
	if w.log, err = os.Create(log); err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = w.log.Close(); w.log = nil }()
	ctx, kill := context.WithCancel(w.t.Context())
	wait := w.start(ctx)
	eventually(w.t, "boot.py says "+says, func() bool {
		text, _ := os.ReadFile(log)
		return strings.Contains(string(text), says)
	})
	kill()
	_, _ = wait()
}

// The agent joins after the extension has succeeded and its toolkit is there, in this order, also
// where the extension or an eviction restarts the machine before.
func TestAgentWaitsForTheDriver(t *testing.T) {
	t.Parallel()
	w := newGPUAgent(t, k3s.Extension)
	w.bootUntil("waiting for the NVIDIA driver: extension NvidiaGpuDriverLinux has reported nothing yet")
	w.reports("transitioning", "installing")
	w.put(w.root+"/built", "", 0o644) // the module is there before the extension restarts the machine
	w.bootUntil("extension NvidiaGpuDriverLinux reports transitioning: installing")
	if text := w.read("/commands"); w.joins() || strings.Contains(text, ".deb") || strings.Contains(text, "modprobe") {
		t.Fatalf("the agent went on before the extension ended:\n%s", text)
	}
	w.reports("success", "")
	w.boot()
	commands := w.read("/commands")
	driver, toolkit := strings.Index(commands, "modprobe nvidia"), strings.Index(commands, "apt-get install")
	if !w.joins() || driver < 0 || toolkit < driver || !strings.Contains(commands, w.root+"/var/lib/ortet/toolkit/toolkit.deb") {
		t.Errorf("joins: %t; commands:\n%s", w.joins(), commands)
	}
	if join := w.read("/etc/ortet/join.json"); !strings.Contains(join, `"nvidia.com/gpu.present": "true"`) || !strings.Contains(join, "nvidia.com/gpu=present:NoSchedule") {
		t.Errorf("join.json lacks label or taint: %s", join)
	}
	w.forget()
	if w.boot(); strings.Contains(w.read("/commands"), "apt-get") {
		t.Errorf("the next boot installs the toolkit again:\n%s", w.read("/commands"))
	}
	w.put(w.root+"/var/lib/ortet/toolkit/installed", sha256Of("an older package"), 0o644)
	w.forget()
	w.boot()
	if commands := w.read("/commands"); !strings.Contains(commands, "dpkg --configure -a") || strings.Index(commands, "apt-get install") < strings.Index(commands, "dpkg --configure -a") {
		t.Errorf("with another toolkit installed, perhaps by halves:\n%s", commands)
	}
}

// A package of another digest than the file's is not installed.
func TestToolkitOfAnotherDigest(t *testing.T) {
	t.Parallel()
	w := newGPUAgent(t, k3s.None)
	w.put(w.root+"/built", "", 0o644)
	w.files["/toolkit.deb"] = "another package"
	w.bootUntil("fetching toolkit.deb: checksum of " + w.url + "/toolkit.deb does not match")
	if text := w.read("/commands"); w.joins() || strings.Contains(text, "toolkit.deb") {
		t.Errorf("joins: %t; commands:\n%s", w.joins(), text)
	}
}

func TestAgentSaysWhyItHasNoDriver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		driver, status, message string
		old, built              bool
		want                    string
	}{
		"extension fails": {k3s.Extension, "error", "exit code 14", false, false,
			"extension NvidiaGpuDriverLinux reports error: exit code 14; k3s does not start; see /var/log/azure/nvidia-vmext-status"},
		"extension hangs": {k3s.Extension, "transitioning", "downloading", true, false,
			"reports transitioning: downloading, more than 45 minutes after this machine was made; k3s does not start; see /var/log/azure/nvidia-vmext-status"},
		"extension without a module": {k3s.Extension, "success", "", true, false, "modprobe nvidia: exit code 1: FATAL: Module nvidia not found, more than 45 minutes"},
		"image without a driver":     {k3s.InImage, "", "", true, false, "more than 5 minutes after this machine was made; k3s does not start; this pool's image has to have the driver"},
		"image without the toolkit":  {k3s.InImage, "", "", false, true, "no program nvidia-container-runtime, without which k3s has no runtime nvidia; the pool's image has to have NVIDIA's container toolkit"},
		"toolkit without a driver":   {k3s.None, "", "", true, false, "k3s does not start; add the distribution's modules to spec.packages"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newGPUAgent(t, c.driver)
			if c.status != "" {
				w.reports(c.status, c.message)
			}
			if c.built {
				w.put(w.root+"/built", "", 0o644)
			}
			if c.old {
				if err := os.Chtimes(w.root+"/etc/ortet/boot.json", time.Time{}, time.Now().Add(-time.Hour)); err != nil {
					t.Fatal(err)
				}
			}
			if w.bootUntil(c.want); w.joins() {
				t.Error("the agent joins all the same")
			}
		})
	}
}

// ortet boot shows the extension's time by what boot.py logs, and how to save it; a boot of the
// captured image has nothing of it.
func TestBootShowsTheDriver(t *testing.T) {
	t.Parallel()
	const advice = "`ortet capture NODE`, then the pool's new image and gpu: {driver: image} in cluster.yaml"
	for driver, c := range map[string]struct {
		took time.Duration
		want string
	}{
		k3s.Extension: {10 * time.Minute, "ortet-boot/waiting for the NVIDIA driver 10m0s"},
		k3s.InImage:   {2 * time.Second, "ortet-boot/loading the NVIDIA driver 2s"},
	} {
		w := newGPUAgent(t, driver)
		w.put(w.root+"/built", "", 0o644)
		w.reports("success", "")
		if driver == k3s.InImage {
			w.program(filepath.Join(w.programs, "nvidia-container-runtime"), "")
		}
		b := bootOf(t, w.boot(), c.took)
		var path []string
		for _, s := range b.Path {
			path = append(path, fmt.Sprintf("%s %s", cmp.Or(s.Span, s.Name), (s.End-s.Start).Duration()))
		}
		t.Logf("gpu.driver: %s\n%s", driver, strings.Join(path, "\n"))
		var saves wire.Micros
		for _, a := range b.Advice {
			t.Logf("saves %s: %s: %s", a.Saves.Duration(), a.What, a.Do)
			if a.Class == timeline.Base && strings.HasSuffix(a.Do, advice) {
				saves += a.Saves
			}
		}
		want := wire.Micros(0)
		if driver == k3s.Extension { // with the toolkit's second
			want = wire.Micros((c.took + time.Second).Microseconds())
		}
		if !slices.Contains(path, c.want) || saves != want {
			t.Errorf("gpu.driver: %s: the advice saves %s, want %s; the path is\n%s", driver, saves.Duration(), want.Duration(), strings.Join(path, "\n"))
		}
	}
}

// bootOf is the boot of an agent whose journal has these lines of boot.py, one a second, but for the
// driver's.
func bootOf(t *testing.T, log string, driver time.Duration) timeline.Timeline {
	t.Helper()
	var journal strings.Builder
	at := 5 * time.Second
	for line := range strings.Lines(log) {
		fmt.Fprintf(&journal, "__REALTIME_TIMESTAMP=%d\n__MONOTONIC_TIMESTAMP=%d\n_BOOT_ID=%032d\n_SYSTEMD_UNIT=ortet-boot.service\nSYSLOG_IDENTIFIER=python3\nMESSAGE=%s\n",
			time.Unix(1700000000, 0).Add(at).UnixMicro(), at.Microseconds(), 1, line)
		if at += time.Second; strings.Contains(line, "the NVIDIA driver") {
			at += driver - time.Second
		}
	}
	reports := source.Journal(strings.NewReader(journal.String()), source.Options{})
	if len(reports) != 1 {
		t.Fatalf("%d boots in the journal:\n%s", len(reports), journal.String())
	}
	r, end := reports[0], wire.Micros(at.Microseconds())
	r.System = wire.SystemTimes{Userspace: 3e6}
	r.Units = []wire.BootUnit{{Name: "ortet-boot.service", Activating: 4e6, Activated: end, Oneshot: true},
		{Name: "k3s-agent.service", Activating: end, Activated: end + 3e6, After: []string{"ortet-boot.service"}}}
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	return timeline.Build(r, timeline.Cloud{})
}

// The model has the driver's extension first and those of others after it, and loses it alone.
func TestDriverExtensionIsBeforeThoseOfOthers(t *testing.T) {
	names := func(d *recipe.Documents) (all []string) {
		for _, r := range d.Compute.Template["resources"].([]any) {
			set, _ := r.(object)
			if set["type"] != "Microsoft.Compute/virtualMachineScaleSets" {
				continue
			}
			profile, _ := set["properties"].(object)["virtualMachineProfile"].(object)["extensionProfile"].(object)
			if profile == nil {
				return []string{"as it is"}
			}
			for _, e := range profile["extensions"].([]any) {
				text, _ := json.Marshal([]any{e.(object)["name"], e.(object)["properties"].(object)["provisionAfterExtensions"], e.(object)["properties"].(object)["settings"]})
				all = append(all, string(text))
			}
		}
		return all
	}
	f := facts()
	other := object{"name": "health", "properties": object{"type": "ApplicationHealthLinux", "settings": object{"path": "[healthz]"}, "provisioningState": "Succeeded"}}
	f.Live = map[string]recipe.Live{"agents": {Count: 1, Extensions: []map[string]any{other}}}
	c := minimal()
	if got := names(render(t, c, f)); strings.Join(got, " ") != "as it is" {
		t.Errorf("a pool without gpu: %v", got)
	}
	c.Spec.Pools[0].GPU = &k3s.GPU{Driver: k3s.Extension}
	want := `["ortet-nvidia-driver",null,{}] ["health",["ortet-nvidia-driver"],{"path":"[[healthz]"}]`
	if got := names(render(t, c, f)); strings.Join(got, " ") != want {
		t.Errorf("a pool with gpu: %v, want %s", got, want)
	}
	c.Spec.Pools[0].GPU = &k3s.GPU{Driver: k3s.None}
	if got := names(render(t, c, f)); strings.Join(got, " ") != "as it is" {
		t.Errorf("a pool whose packages have the driver: %v", got)
	}
	own := object{"name": "driver", "properties": object{"type": "NvidiaGpuDriverLinux"}}
	f.Live["agents"] = recipe.Live{Count: 1, Extensions: []map[string]any{own}}
	c.Spec.Pools[0].GPU = &k3s.GPU{Driver: k3s.Extension}
	if got := names(render(t, c, f)); strings.Join(got, " ") != `["ortet-nvidia-driver",null,{}]` {
		t.Errorf("a pool with this extension by another name, of which Azure takes one: %v", got)
	}
	f.Live["agents"] = recipe.Live{Count: 1, Extensions: []map[string]any{{"name": recipe.DriverExtension, "properties": object{}}}}
	c.Spec.Pools[0].GPU = nil
	if got := names(render(t, c, f)); len(got) > 0 {
		t.Errorf("a pool that has no gpu any more: %v", got)
	}
	c.Spec.Pools[0].GPU = &k3s.GPU{Driver: k3s.InImage}
	other["properties"].(object)["provisionAfterExtensions"] = []any{recipe.DriverExtension}
	f.Live["agents"] = recipe.Live{Count: 1, Extensions: []map[string]any{{"name": recipe.DriverExtension, "properties": object{}}, other}}
	if got := names(render(t, c, f)); strings.Join(got, " ") != `["health",[],{"path":"[[healthz]"}]` {
		t.Errorf("a pool whose image has the driver: %v", got)
	}
}

// The device plugin is the file's, on Nodes with GPUs alone, and there is no RuntimeClass beside k3s's.
func TestDevicePluginManifest(t *testing.T) {
	var settings struct {
		Files []struct{ Path, Content string }
	}
	c := full()
	if err := json.Unmarshal(render(t, c, facts()).Settings, &settings); err != nil {
		t.Fatal(err)
	}
	var plugin appsv1.DaemonSet
	for _, f := range settings.Files {
		if strings.Contains(f.Content, "kind: RuntimeClass") {
			t.Errorf("%s has a RuntimeClass", f.Path)
		}
		if strings.HasSuffix(f.Path, "/server/manifests/nvidia-device-plugin.yaml") {
			if err := yaml.UnmarshalStrict([]byte(f.Content), &plugin); err != nil {
				t.Fatal(err)
			}
		}
	}
	pod := plugin.Spec.Template.Spec
	if len(pod.Containers) != 1 || pod.Containers[0].Image != c.Spec.Options.DevicePlugin || pod.RuntimeClassName == nil || *pod.RuntimeClassName != "nvidia" || pod.NodeSelector[k3s.GPULabel] != "true" ||
		!slices.Contains(pod.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists}) { // a pool may have taints of its own
		t.Errorf("%+v", pod)
	}
}
