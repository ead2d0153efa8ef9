//go:build e2e

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/image/plan"

	"github.com/ortet/ortet/internal/fleet"
)

// clients returns the SDK's clients of the harness, who may do all.
func (w *world) clients(t *testing.T) *armcompute.ClientFactory {
	t.Helper()
	f, err := w.azure.Clients()
	must(t, err)
	return f
}

func (w *world) group() string { return w.azure.Endpoint.ResourceGroup }

// all reads every page of a list.
func all[P, T any](t *testing.T, pager *runtime.Pager[P], items func(P) []*T) []*T {
	t.Helper()
	var out []*T
	for pager.More() {
		page, err := pager.NextPage(t.Context())
		if notFound(err) {
			return nil
		}
		must(t, err)
		out = append(out, items(page)...)
	}
	return out
}

func notFound(err error) bool {
	var answer *azcore.ResponseError
	return errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound
}

func (p *pool) id() fleet.ResourceID {
	return fleet.ResourceID("/subscriptions/" + p.azure.Endpoint.Subscription + "/resourceGroups/" + p.group() +
		"/providers/Microsoft.Compute/virtualMachineScaleSets/" + p.name)
}

// image is what the model uses.
func (p *pool) image(t *testing.T) *armcompute.ImageReference {
	t.Helper()
	set, err := p.azure.Pool(t.Context(), p.name)
	must(t, err)
	return set.Properties.VirtualMachineProfile.StorageProfile.ImageReference
}

// pinned ends the test unless the model uses that version, and nothing beside it.
func (p *pool) pinned(t *testing.T, version string) {
	t.Helper()
	image := p.image(t)
	if got := path.Base(str(image.ID)); got != version {
		t.Fatalf("the model uses %q, want version %s", str(image.ID), version)
	}
	if image.Publisher != nil || image.Offer != nil || image.SKU != nil || image.Version != nil {
		text, err := json.Marshal(image)
		t.Fatalf("publisher, offer, sku or version are still in the model: %s %v", text, err)
	}
}

func str(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// versions are the pool's image versions, by name.
func (p *pool) versions(t *testing.T) []string {
	t.Helper()
	names := plan.NamesOf(p.id(), "")
	list := all(t, p.clients(t).NewGalleryImageVersionsClient().NewListByGalleryImagePager(p.group(), names.Gallery.Name(), names.Definition.Name(), nil),
		func(page armcompute.GalleryImageVersionsClientListByGalleryImageResponse) []*armcompute.GalleryImageVersion {
			return page.Value
		})
	out := make([]string, 0, len(list))
	for _, v := range list {
		out = append(out, str(v.Name))
	}
	slices.Sort(out)
	return out
}

// instances are the pool's, by their nodes' names.
func (p *pool) instances(t *testing.T) map[string]*armcompute.VirtualMachineScaleSetVM {
	t.Helper()
	expand := "instanceView"
	list := all(t, p.clients(t).NewVirtualMachineScaleSetVMsClient().NewListPager(p.group(), p.name, &armcompute.VirtualMachineScaleSetVMsClientListOptions{Expand: &expand}),
		func(page armcompute.VirtualMachineScaleSetVMsClientListResponse) []*armcompute.VirtualMachineScaleSetVM {
			return page.Value
		})
	out := map[string]*armcompute.VirtualMachineScaleSetVM{}
	for _, vm := range list {
		out[strings.ToLower(str(vm.Properties.OSProfile.ComputerName))] = vm
	}
	return out
}

// resources returns every resource of Azure that bears the pool's name, as JSON by
// id, instances among them.
func (p *pool) resources(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	keep := func(id *string, v any) {
		if strings.Contains(strings.ToLower(str(id)), p.name) {
			text, err := json.Marshal(v)
			must(t, err)
			out[strings.ToLower(str(id))] = string(text)
		}
	}
	f := p.clients(t)
	set, err := p.azure.Pool(t.Context(), p.name)
	must(t, err)
	keep(set.ID, set)
	for _, vm := range p.instances(t) {
		// The view tells the time of its reading.
		vm.Properties.InstanceView = nil
		keep(vm.ID, vm)
	}
	for _, d := range all(t, f.NewDisksClient().NewListByResourceGroupPager(p.group(), nil),
		func(page armcompute.DisksClientListByResourceGroupResponse) []*armcompute.Disk { return page.Value }) {
		keep(d.ID, d)
	}
	for _, s := range all(t, f.NewSnapshotsClient().NewListByResourceGroupPager(p.group(), nil),
		func(page armcompute.SnapshotsClientListByResourceGroupResponse) []*armcompute.Snapshot {
			return page.Value
		}) {
		keep(s.ID, s)
	}
	names := plan.NamesOf(p.id(), "")
	for _, d := range all(t, f.NewGalleryImagesClient().NewListByGalleryPager(p.group(), names.Gallery.Name(), nil),
		func(page armcompute.GalleryImagesClientListByGalleryResponse) []*armcompute.GalleryImage {
			return page.Value
		}) {
		keep(d.ID, d)
	}
	for _, v := range all(t, f.NewGalleryImageVersionsClient().NewListByGalleryImagePager(p.group(), names.Gallery.Name(), names.Definition.Name(), nil),
		func(page armcompute.GalleryImageVersionsClientListByGalleryImageResponse) []*armcompute.GalleryImageVersion {
			return page.Value
		}) {
		keep(v.ID, v)
	}
	return out
}

// A kept is what people and controllers set on a node.
type kept struct {
	labels, annotations map[string]string
	spec                corev1.NodeSpec
	protected           bool
	power               string
}

// node reads one, as far as a capture could change it.
func (p *pool) node(t *testing.T, name string) kept {
	t.Helper()
	n, err := p.kube.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	k := kept{labels: n.Labels, annotations: n.Annotations, spec: n.Spec}
	if vm := p.instances(t)[name]; vm != nil {
		if policy := vm.Properties.ProtectionPolicy; policy != nil {
			k.protected = policy.ProtectFromScaleIn != nil && *policy.ProtectFromScaleIn || policy.ProtectFromScaleSetActions != nil && *policy.ProtectFromScaleSetActions
		}
		k.power = powerOf(vm)
	}
	return k
}

func powerOf(vm *armcompute.VirtualMachineScaleSetVM) (power string) {
	if view := vm.Properties.InstanceView; view != nil {
		for _, s := range view.Statuses {
			if state, ok := strings.CutPrefix(str(s.Code), "PowerState/"); ok {
				power = state
			}
		}
	}
	return power
}

// whole ends the test unless the donor is as it was, and works.
func (p *pool) whole(t *testing.T, name string, before kept) {
	t.Helper()
	now := p.node(t, name)
	switch {
	case now.spec.Unschedulable != before.spec.Unschedulable:
		t.Fatalf("node %s: unschedulable is %v, was %v", name, now.spec.Unschedulable, before.spec.Unschedulable)
	case now.protected != before.protected:
		t.Fatalf("instance of node %s: protected is %v, was %v", name, now.protected, before.protected)
	case now.power != "running":
		t.Fatalf("instance of node %s is %q", name, now.power)
	case !maps.Equal(now.annotations, before.annotations):
		t.Fatalf("annotations of node %s are %v, were %v", name, now.annotations, before.annotations)
	case !maps.Equal(now.labels, before.labels):
		t.Fatalf("labels of node %s are %v, were %v", name, now.labels, before.labels)
	}
	eventually(t, "node "+name+" to be Ready, with the taints that it had", func() bool {
		n, err := p.kube.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		must(t, err)
		return isReady(n) && len(n.Spec.Taints) == len(before.spec.Taints)
	})
}

// clean ends the test where something temporary is left: snapshots, disks that
// belong to no instance, pods, the Lease.
func (p *pool) clean(t *testing.T) {
	t.Helper()
	var left []string
	for id := range p.resources(t) {
		switch {
		case strings.Contains(id, "/snapshots/"), strings.Contains(id, "/disks/disk_"):
			left = append(left, id)
		}
	}
	for name, vm := range p.instances(t) {
		if n := len(vm.Properties.StorageProfile.DataDisks); n > 0 {
			left = append(left, name+" still has a data disk attached")
		}
	}
	pods, err := p.kube.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, pod := range pods.Items {
		if strings.Contains(pod.Name, p.short) {
			left = append(left, "pod "+pod.Name)
		}
	}
	lease, err := p.kube.CoordinationV1().Leases(namespace).Get(t.Context(), kube.LeaseName(string(p.id())), metav1.GetOptions{})
	if err == nil {
		left = append(left, "lease "+lease.Name+" of "+str(lease.Spec.HolderIdentity))
	} else if !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Fatalf("left behind: %s", strings.Join(left, ", "))
	}
}

// file reads a file of the disk that an instance runs from; "" where there is none.
func (p *pool) file(t *testing.T, node, pattern string) string {
	t.Helper()
	vm := p.instances(t)[node]
	if vm == nil {
		t.Fatalf("node %s has no instance", node)
	}
	disk := strings.ToLower(path.Base(str(vm.Properties.StorageProfile.OSDisk.ManagedDisk.ID)))
	trees, err := filepath.Glob(filepath.Join(p.azure.Dir, "hollow", "volumes", disk+"-*"))
	must(t, err)
	if len(trees) != 1 {
		t.Fatalf("disk %s of node %s lies in %v", disk, node, trees)
	}
	files, err := filepath.Glob(filepath.Join(trees[0], pattern))
	must(t, err)
	var all strings.Builder
	for _, f := range files {
		// Links are absolute inside the tree.
		if target, err := os.Readlink(f); err == nil && path.IsAbs(target) {
			f = filepath.Join(trees[0], target)
		}
		text, err := os.ReadFile(f)
		must(t, err)
		all.Write(text)
	}
	return all.String()
}

// mark is where azsim's log of requests is now.
func (p *pool) mark(t *testing.T) int {
	t.Helper()
	last := 0
	for _, r := range p.requests(t) {
		last = max(last, r.Seq)
	}
	return last
}

// writes are the changes that the pool's principal asked of Azure since then.
func (p *pool) writes(t *testing.T, since int) []string {
	t.Helper()
	var out []string
	for _, r := range p.requests(t) {
		if r.Seq > since && r.Principal == objectID(p.short) && r.Action != "" && !strings.HasSuffix(r.Action, "/read") {
			out = append(out, r.Method+" "+r.Path)
		}
	}
	return out
}

func (p *pool) requests(t *testing.T) []azsim.Request {
	t.Helper()
	var list struct {
		Value []azsim.Request `json:"value"`
	}
	p.control(t, http.MethodGet, "requests", nil, &list)
	return list.Value
}

// control asks azsim's own endpoints.
func (w *world) control(t *testing.T, method, what string, in, out any) {
	t.Helper()
	var body strings.Builder
	if in != nil {
		must(t, json.NewEncoder(&body).Encode(in))
	}
	request, err := http.NewRequestWithContext(t.Context(), method, w.azure.Endpoint.ResourceManager+"/azsim/"+what, strings.NewReader(body.String()))
	must(t, err)
	answer, err := w.web.Do(request)
	must(t, err)
	defer answer.Body.Close()
	if answer.StatusCode >= http.StatusBadRequest {
		t.Fatalf("%s %s: %s", method, what, answer.Status)
	}
	if out != nil {
		must(t, json.NewDecoder(answer.Body).Decode(out))
	}
}

func webClient(t *testing.T, caFile string) *http.Client {
	t.Helper()
	ca, err := os.ReadFile(caFile)
	must(t, err)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		t.Fatalf("%s holds no certificate", caFile)
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
}

// unchanged ends the test where two looks at something differ.
func unchanged(t *testing.T, what string, before, after map[string]string) {
	t.Helper()
	for k, v := range before {
		if after[k] != v {
			t.Errorf("%s: %s was\n%s\nand is\n%s", what, k, v, after[k])
		}
	}
	for k := range after {
		if _, there := before[k]; !there {
			t.Errorf("%s: %s is new", what, k)
		}
	}
}

// objects are the pool's nodes, and all that ortet keeps of the pool, as text by
// name: what people and controllers set, not what kubelets report.
func (p *pool) objects(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	keep := func(name string, v any) {
		text, err := json.Marshal(v)
		must(t, err)
		out[name] = string(text)
	}
	nodes, err := p.kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, n := range nodes.Items {
		if strings.HasPrefix(n.Name, p.name) {
			keep("node "+n.Name, []any{n.Labels, n.Annotations, n.Spec})
		}
	}
	secrets, err := p.kube.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, s := range secrets.Items {
		if strings.Contains(s.Name, p.short) {
			keep("secret "+s.Name, s.Data)
		}
	}
	return out
}
