package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/sync/errgroup"

	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/test/azsimserver"
)

const pool = "bench-pool1-vmss"

// world is a control plane and a simulated Azure with a pool of hollow nodes.
type world struct {
	benchCluster
	azure *azsimserver.Azure
	bin   string
	web   *http.Client // for azsim's own endpoints
	// kubeconfig is what ortet is given.
	kubeconfig string
}

// builds is how long a version takes: the least that kamino's published logs show,
// which makes the share of everything else the greatest.
func builds() map[string]any { return map[string]any{"min": "664s"} }

// newWorld starts it and waits for the nodes.
func newWorld(ctx context.Context, bin string, speed float64, version map[string]any) (_ *world, err error) {
	w := &world{bin: bin}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if err := w.start(ctx, 0); err != nil {
		return nil, err
	}
	w.kubeconfig = w.cp.Kubeconfig
	bootstrap, err := w.cp.BootstrapKubeconfig(ctx, w.cp.Server, time.Now().Add(time.Hour))
	if err != nil {
		return nil, err
	}
	w.azure, err = azsimserver.Start(ctx, azsimserver.Config{
		Dir: filepath.Join(w.dir, "azure"), Bin: bin, Speed: speed, Kubeconfig: w.cp.Kubeconfig, Instances: azsimserver.Hollow, ClientCA: w.cp.CAFile,
		Spec: map[string]any{"profile": map[string]any{"version.create": version}},
		Pools: []azsimserver.Pool{{Name: pool, Capacity: 3, CustomData: azsimserver.CloudConfig(map[string][]byte{
			"/etc/kubernetes/bootstrap-kubelet.conf": bootstrap,
		})}},
	})
	if err != nil {
		return nil, err
	}
	w.undo = append(w.undo, func() error {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		return w.azure.Stop(stop)
	})
	_, err = azsimserver.AwaitReady(ctx, w.client, 3)
	return w, err
}

// capture runs the real binary and gives its result and its peak of anonymous
// memory in bytes.
func (w *world) capture(ctx context.Context, flags ...string) (capture.Result, int64, error) {
	var result capture.Result
	cmd := exec.CommandContext(ctx, filepath.Join(w.bin, "ortet"), append([]string{"capture", pool + "000000", "--image=example.invalid/ortet:1", "--bootstrap=baked", "--accept-pool-credentials",
		"--grace-period=30s", "-o", "json", "--azure-config=" + w.azure.Endpoint.AzureConfig, "--kubeconfig=" + w.kubeconfig}, flags...)...)
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+w.azure.Endpoint.CAFile)
	var out, complaint strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Start(); err != nil {
		return result, 0, err
	}
	peak := watchMemory(cmd.Process.Pid)
	err := cmd.Wait()
	most := peak()
	if err != nil {
		return result, most, fmt.Errorf("ortet capture: %w:\n%s", err, complaint.String())
	}
	return result, most, json.Unmarshal([]byte(out.String()), &result)
}

// watchMemory returns what ends it, and returns the greatest RssAnon that it saw, in bytes.
func watchMemory(pid int) func() int64 {
	ended, most := make(chan struct{}), make(chan int64)
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		var seen int64
		for {
			if now, err := memoryOf(pid, "RssAnon:"); err == nil { // it may have ended just now
				seen = max(seen, now)
			}
			select {
			case <-ended:
				most <- seen
				return
			case <-tick.C:
			}
		}
	}()
	return func() int64 { close(ended); return <-most }
}

// captureOverhead measures what a capture takes outside of its steps: the wall-clock less
// the steps on the critical path. That does not shrink when Azure is made faster, so its
// share is of what the wall-clock would be at Azure's own pace. What Ortet adds within
// steps, the benchmark outage measures.
func captureOverhead(ctx context.Context, o options) (_ []figure, err error) {
	w, err := newWorld(ctx, o.bin, o.speed, builds())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	result, _, err := w.capture(ctx)
	if err != nil {
		return nil, err
	}
	wall := result.Timing.End.Sub(result.Timing.Begin)
	path := criticalPath(result.Timing.Steps)
	var steps time.Duration
	for _, s := range path {
		steps += s.End.Sub(s.Begin)
		fmt.Fprintf(os.Stderr, "bench:   %-22s from %8.3f s: %8.3f s\n", s.Step, s.Begin.Sub(result.Timing.Begin).Seconds(), s.End.Sub(s.Begin).Seconds())
	}
	between := wall - steps
	return []figure{
		free("wall-clock", wall.Seconds(), "s"),
		free("steps", steps.Seconds(), "s"),
		atMost("between-steps", between.Seconds(), "s", 2),
		atMost("between-steps-share", 100*between.Seconds()/(between.Seconds()+o.speed*steps.Seconds()), "%", 1),
		free("speed", o.speed, "x"),
		free("steps-on-path", float64(len(path)), ""),
	}, nil
}

// criticalPath returns the chain of steps that the end waited for, first to last:
// from the last step back, always to the one that ended last before it began.
func criticalPath(steps []workflow.StepTiming) []workflow.StepTiming {
	var path []workflow.StepTiming
	latest := func(before time.Time) (workflow.StepTiming, bool) {
		var best workflow.StepTiming
		found := false
		for _, s := range steps {
			used := slices.ContainsFunc(path, func(p workflow.StepTiming) bool { return p.Step == s.Step })
			if !used && !s.End.After(before) && s.End.After(best.End) {
				best, found = s, true
			}
		}
		return best, found
	}
	for before, more := time.Unix(1<<40, 0), true; more; {
		var s workflow.StepTiming
		if s, more = latest(before); more {
			path = append([]workflow.StepTiming{s}, path...)
			before = s.Begin
		}
	}
	return path
}

const (
	manyNodes = 1000
	manyPods  = 10000
)

// captureMemory measures a capture in a large cluster. The other nodes are
// objects without anything behind them, which is all that Ortet sees of them.
func captureMemory(ctx context.Context, o options) (_ []figure, err error) {
	w, err := newWorld(ctx, o.bin, 300, builds())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.crowd(ctx); err != nil {
		return nil, err
	}
	_, most, err := w.capture(ctx)
	if err != nil {
		return nil, err
	}
	return []figure{atMost("anonymous-peak", float64(most)/1e6, "MB", 60)}, nil
}

func (w *world) crowd(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for n := range manyNodes - 3 {
		name := fmt.Sprintf("other-%04d", n)
		g.Go(func() error {
			_, err := w.client.CoreV1().Nodes().Create(ctx, &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "westeurope-1"}},
				Spec:       corev1.NodeSpec{ProviderID: fmt.Sprintf("azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/other/virtualMachines/%d", n)},
				Status:     corev1.NodeStatus{Images: someImages()},
			}, metav1.CreateOptions{})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	g, ctx = errgroup.WithContext(context.WithoutCancel(ctx))
	g.SetLimit(16)
	for n := range manyPods {
		g.Go(func() error {
			_, err := w.client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%05d", n), Labels: map[string]string{"app": "crowd"}},
				Spec: corev1.PodSpec{
					NodeName:    fmt.Sprintf("other-%04d", n%(manyNodes-3)),
					Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
					Containers: []corev1.Container{{Name: "c", Image: "example.invalid/c:1",
						Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m")}}}},
				},
			}, metav1.CreateOptions{})
			return err
		})
	}
	return g.Wait()
}

// someImages is as much as a kubelet reports: the 50 largest images.
func someImages() []corev1.ContainerImage {
	images := make([]corev1.ContainerImage, 50)
	for i := range images {
		images[i] = corev1.ContainerImage{
			Names:     []string{fmt.Sprintf("registry.example.invalid/team/service-%02d@sha256:%064d", i, i), fmt.Sprintf("registry.example.invalid/team/service-%02d:v1.%d", i, i)},
			SizeBytes: int64(i) << 20,
		}
	}
	return images
}
