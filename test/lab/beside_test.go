//go:build e2e && linux

package lab

import (
	"context"
	"maps"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/test/process"
)

// buildAutoscaler builds the one that test/azclient has: a module of its own, for
// the Azure client of cluster-autoscaler.
func (l *lab) buildAutoscaler(ctx context.Context, t *testing.T) {
	t.Helper()
	l.run(ctx, t, "go", "build", "-C", filepath.Join("test", "azclient"), "-trimpath", "-o", l.bin+"/", "./scaledown")
}

// checkBeside makes a further prototype while an autoscaler deletes every empty
// node that nothing protects, down to two: these are the donor and the workbench.
func (l *lab) checkBeside(ctx context.Context, t *testing.T, donor, bench string) {
	l.removeDeployment(ctx, t)
	kept := []string{donor, bench}
	before := l.instances(ctx, t)
	annotations := map[string]map[string]string{}
	for _, n := range kept {
		annotations[n] = l.node(ctx, t, n).Annotations
	}
	versions := l.versions(ctx, t, l.checkModel(ctx, t))

	stop := l.scaleDown(ctx, t, len(kept))
	limited, cancel := context.WithTimeout(ctx, 6*time.Minute) // like the Job's
	defer cancel()
	if err := l.change(limited, t, "capture", donor, "--image="+ortetImage, "--workbench="+bench, "--again", "--accept-pool-credentials", "--grace-period=30s"); err != nil {
		t.Errorf("the capture did not end with 0 at its first try: %v", err)
	}
	asked := slices.Sorted(slices.Values(stop()))
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(before)), func(n string) bool { return slices.Contains(kept, n) })
	if !slices.Equal(slices.Compact(asked), others) {
		t.Errorf("the autoscaler asked for the deletion of %v, want %v: the empty nodes but %v", asked, others, kept)
	}

	after := l.instances(ctx, t)
	if got := slices.Collect(maps.Keys(after)); len(got) != len(kept) {
		t.Errorf("machines %v, want %v", got, kept)
	}
	for _, n := range kept {
		if after[n] == nil {
			t.Fatalf("%s is no instance of the pool any more", n)
		}
		if now, was := *after[n].Properties.VMID, *before[n].Properties.VMID; now != was {
			t.Errorf("%s is the machine %s, and was %s", n, now, was)
		}
		now := l.node(ctx, t, n)
		if !ready(*now) || now.Spec.Unschedulable {
			t.Errorf("%s: ready %v, unschedulable %v", n, ready(*now), now.Spec.Unschedulable)
		}
		if !maps.Equal(now.Annotations, annotations[n]) {
			t.Errorf("%s: annotations %v, before %v", n, now.Annotations, annotations[n])
		}
		l.checkUnprotected(ctx, t, n)
	}
	if now := l.checkModel(ctx, t); slices.Contains(versions, resource(now).version) {
		t.Errorf("the model's image is %s, one of before", now)
	}
	l.checkTemporary(ctx, t, kept)
}

// scaleDown starts the autoscaler. The function that it gives ends it, and gives the
// nodes whose deletion it asked for.
func (l *lab) scaleDown(ctx context.Context, t *testing.T, minimum int) func() []string {
	t.Helper()
	p, err := process.Start(process.Command{
		Name: "scaledown", Binary: filepath.Join(l.bin, "scaledown"), Env: l.trusting(), Log: filepath.Join(l.dir, "scaledown.log"),
		Args: []string{
			"--azure-config=" + l.azure.Endpoint.AzureConfig, "--api-server=" + l.proxy(t), "--pool=" + poolName,
			"--minimum=" + strconv.Itoa(minimum), "--scan-interval=1s",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	// A deletion that it waits for takes as long as a machine needs to end.
	finish := func(ctx context.Context) error { return p.Stop(ctx, 2*time.Minute) }
	t.Cleanup(func() { end(t, finish) })
	return func() (asked []string) {
		t.Helper()
		early := p.Exited()
		if err := finish(ctx); err != nil {
			t.Error(err)
		}
		if early || p.Err() != nil {
			t.Errorf("the autoscaler ended before its time %v: %v", early, p.Err())
		}
		log, err := os.ReadFile(p.Log)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("the autoscaler:\n%s", log)
		for line := range strings.Lines(string(log)) {
			if node, is := strings.CutPrefix(strings.TrimSpace(line), "delete "); is {
				asked = append(asked, node)
			}
		}
		return asked
	}
}

// proxy serves the API server to clients without credentials, until the test ends.
func (l *lab) proxy(t *testing.T) string {
	t.Helper()
	config, err := l.cp.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(&httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }})
	t.Cleanup(server.Close)
	return server.URL
}

// removeDeployment undoes deploy, and waits until no pod of it is left.
func (l *lab) removeDeployment(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := l.client.PolicyV1().PodDisruptionBudgets("default").Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := l.client.AppsV1().Deployments("default").Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	poll(ctx, t, "the Deployment's pods to end", 2*time.Minute, func(ctx context.Context) (bool, error) {
		list, err := l.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		return err == nil && len(list.Items) == 0, err
	})
}
