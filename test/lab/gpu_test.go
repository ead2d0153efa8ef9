//go:build e2e && linux

package lab

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rootfs "github.com/ortet/ortet/hack/lab"
	"github.com/ortet/ortet/test/azsimserver"
)

// gpuSetup is what makes an agent one with a GPU, in a pool's custom data: the toolkit is installed
// by the program of Ortet's clusters, and a device that gives zeros stands in for a GPU.
const gpuSetup = `- [python3, -c, 'import subprocess, sys; sys.path.insert(0, "/opt"); import gpu; gpu.GPU("", lambda *a, env: subprocess.run(a, env=env, check=True)).toolkit({"toolkit": [{"sha256": "1", "path": "/opt/toolkit.deb"}]})']
- [nvidia-ctk, config, --in-place, --set, nvidia-container-runtime.mode=cdi]
- [sh, -c, 'mkdir -p /etc/cdi; echo "$0" >/etc/cdi/stand-in.json; touch /run/installed', '{"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0", "hostPath": "/dev/zero"}]}}]}']
`

// TestGPUOnRealMachines captures an agent of k3s with NVIDIA's container runtime. Pods of RuntimeClass
// nvidia have its device and others have not, on the agent and on its clone, where nothing is installed.
func TestGPUOnRealMachines(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	line := newTimeline(t)
	line.begin("binaries, container toolkit, disk image")
	l, binary, disk := prepareLab(ctx, t, "gpu")
	l.buildOrtet(ctx, t)
	baked := bakeK3s(ctx, t, l, binary, disk, map[string]string{
		"var/lib/rancher/k3s/agent/images/lab-ortet.tar": l.image("ortet"),
		"var/lib/ortet/toolkit/none":                     "/dev/null",
		"opt/toolkit.deb":                                strings.TrimSpace(l.run(ctx, t, "hack/toolkit/build.sh")),
		"opt/gpu.py":                                     filepath.Join(l.checkout, "internal/k3s/recipe/gpu.py"),
	})
	l.startAzure(ctx, t, map[string]string{"*": baked})

	line.begin("server")
	server := l.startK3s(ctx, t)

	line.begin("two agents with GPUs boot")
	config := fmt.Sprintf("server: https://%s:6443\ntoken: %s\npause-image: %s\n", l.addressOf(ctx, t, server),
		l.machines.sh(ctx, t, server, "cat /var/lib/rancher/k3s/server/node-token"), rootfs.PauseImage)
	data := strings.Replace(k3sData("k3s-agent.service", config), "runcmd:\n", "runcmd:\n"+gpuSetup, 1)
	began := time.Now()
	if err := l.azure.Create(ctx, azsimserver.Pool{Name: poolName, Capacity: 2, CustomData: data, Change: azsimserver.Bare}); err != nil {
		t.Fatalf("create the agents: %v", err)
	}
	nodes := l.awaitNodes(ctx, t, 3)
	first := time.Since(began)
	agents := slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return n == server })
	donor, bench := agents[0], agents[1]

	line.begin("pods on an agent, and on the server, which has no runtime")
	l.checkGPU(ctx, t, donor, true)
	l.startGPUPod(ctx, t, "on-server", server, "nvidia")
	poll(ctx, t, "the refusal of a pod", time.Minute, func(ctx context.Context) (bool, error) {
		events, err := l.client.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=on-server"})
		return err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return strings.Contains(e.Message, `no runtime for "nvidia" is configured`)
		}), err
	})
	l.endPod(ctx, t, "on-server")

	line.begin("capture of an agent")
	if err := l.change(ctx, t, "capture", donor, "--image="+ortetImage, "--workbench="+bench, "--bootstrap=baked",
		"--accept-pool-credentials", "--grace-period=30s"); err != nil {
		l.explain(t)
		t.Fatal(err)
	}
	version := l.checkModel(ctx, t)
	l.awaitNodes(ctx, t, 3)

	line.begin("a clone boots")
	l.machines.forget()
	began = time.Now()
	if err := l.azure.ScaleOut(ctx, poolName, 1); err != nil {
		t.Fatal(err)
	}
	clones := slices.DeleteFunc(l.awaitNodes(ctx, t, 4), func(n string) bool { return slices.Contains(nodes, n) })
	second := time.Since(began)
	if len(clones) != 1 {
		t.Fatalf("clones %v, want 1", clones)
	}
	image := l.instances(ctx, t)[clones[0]].Properties.StorageProfile.ImageReference.ID
	if image == nil || path.Base(*image) != path.Base(version) {
		t.Errorf("clone %s was made from %v, want %s", clones[0], image, version)
	}
	line.begin("pods on the clone")
	l.checkGPU(ctx, t, clones[0], false)
	t.Logf("boot to Ready: %.1f s with the toolkit's installation, %.1f s of the clone", first.Seconds(), second.Seconds())
	line.print()
}

// checkGPU has a pod with RuntimeClass nvidia on a node and one without read the device, and
// looks whether the toolkit was installed in this boot.
func (l *lab) checkGPU(ctx context.Context, t *testing.T, node string, installed bool) {
	t.Helper()
	if got := l.machines.sh(ctx, t, node, "test -e /run/installed && echo true || echo false"); got != fmt.Sprint(installed) {
		t.Errorf("the toolkit was installed in this boot of %s: %s, want %t", node, got, installed)
	}
	for class, want := range map[string]string{"nvidia": "200 00000000", "": "404"} {
		name := "gpu" + class
		l.startGPUPod(ctx, t, name, node, class)
		var address string
		poll(ctx, t, "pod "+name+" on "+node, 2*time.Minute, func(ctx context.Context) (bool, error) {
			p, err := l.client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
			if err == nil {
				address = p.Status.PodIP
			}
			return err == nil && p.Status.Phase == corev1.PodRunning, err
		})
		got := l.machines.sh(ctx, t, node, "curl --silent --retry 5 --retry-connrefused --output /run/device --write-out '%{http_code} ' http://"+address+
			":8080/dev/nvidia0; od -An -tx1 /run/device | tr -d ' '")
		if !strings.HasPrefix(got, want) {
			t.Errorf("a pod of RuntimeClass %q on %s reads %q, want %q", class, node, got, want)
		} else {
			t.Logf("a pod of RuntimeClass %q on %s reads %s", class, node, got)
		}
		l.endPod(ctx, t, name)
	}
}

// startGPUPod makes a pod that wants the first GPU, as NVIDIA's images do.
func (l *lab) startGPUPod(ctx context.Context, t *testing.T, name, node, class string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		NodeName: node, TerminationGracePeriodSeconds: new(int64(5)),
		Containers: []corev1.Container{{Name: "c", Image: rootfs.WebImage, ImagePullPolicy: corev1.PullNever, Env: []corev1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "0"}}}},
	}}
	if class != "" {
		pod.Spec.RuntimeClassName = &class
	}
	if _, err := l.client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (l *lab) endPod(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	if err := l.client.CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}
