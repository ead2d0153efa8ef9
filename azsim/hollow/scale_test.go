//go:build e2e

package hollow_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/azsim/hollow"
	"github.com/ortet/ortet/test/controlplane"
)

var (
	scaleNodes = flag.Int("hollow.nodes", 60, "nodes of TestScale")
	scalePods  = flag.Int("hollow.pods", 600, "pods of TestScale")
	scaleIdle  = flag.Duration("hollow.idle", 10*time.Second, "how long TestScale watches what the nodes cost at rest")
)

// used is the processor time of this process, and of others by their ids.
func used(t *testing.T, pids ...int) (self, others time.Duration) {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	self = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		for _, field := range fields[11:13] { // utime and stime, in hundredths of a second
			ticks, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			others += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return self, others
}

// Many nodes and pods come up, and rest cheaply.
func TestScale(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute of two processors; left out by -short")
	}
	// The shared one has little patience with nodes that renew as kubelets do.
	cp := controlplane.Run(t, controlplane.Config{})
	w := newWorldOn(t, cp, func(c *hollow.Config) { c.LeaseInterval = 0 })
	pids := w.cp.PIDs()
	self, others := used(t, pids...)
	begun := time.Now()
	report := func(what string) {
		nowSelf, nowOthers := used(t, pids...)
		t.Logf("%-32s %6.1f s, processor %6.1f s here, %6.1f s control plane", what, time.Since(begun).Seconds(), (nowSelf - self).Seconds(), (nowOthers - others).Seconds())
		self, others, begun = nowSelf, nowOthers, time.Now()
	}
	var wait sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range *scaleNodes {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			c := w.computer(i)
			c.Location = w.name
			if err := w.substrate.CreateVolume(t.Context(), c.OSDisk, azsim.Source{Platform: image}); err != nil {
				t.Error(err)
			}
			if err := w.substrate.Boot(t.Context(), c); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	for i := range *scaleNodes {
		w.ready(w.computer(i).HostName)
	}
	report(fmt.Sprintf("%d nodes Ready", *scaleNodes))
	if _, err := w.client.AppsV1().Deployments(w.name).Create(t.Context(),
		deployment(int32(*scalePods), map[string]string{corev1.LabelTopologyRegion: w.name}, nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("all pods are Ready", func(ctx context.Context) error { // looking at all of them would cost more than they do
		got, err := w.client.AppsV1().Deployments(w.name).Get(ctx, "web", metav1.GetOptions{})
		if err == nil && int(got.Status.ReadyReplicas) != *scalePods {
			err = fmt.Errorf("%d made, %d Ready", got.Status.Replicas, got.Status.ReadyReplicas)
		}
		return err
	})
	pods := w.runningPods(*scalePods)
	report(fmt.Sprintf("%d pods Ready", len(pods)))
	addresses := map[string]bool{}
	for i := range pods {
		addresses[pods[i].Status.PodIP] = true
	}
	if len(addresses) != len(pods) {
		t.Errorf("%d addresses for %d pods", len(addresses), len(pods))
	}
	time.Sleep(*scaleIdle)
	report(fmt.Sprintf("at rest for %s", *scaleIdle))
	for i := range *scaleNodes {
		w.ready(w.computer(i).HostName)
	}
}
