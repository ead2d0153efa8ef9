//go:build e2e

package hollow_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/azsim/hollow"
)

func TestNodesJoinFromPlatformImage(t *testing.T) {
	w := newWorld(t, func(c *hollow.Config) { c.LoopbackAddresses = true })
	if a, own := w.substrate.PrivateAddress(w.computer(0).ID); !own || a.IsValid() {
		t.Errorf("%v (%v) before the boot", a, own)
	}
	machineIDs, addresses, hostKeys := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i := range 3 {
		w.boot(i, azsim.Source{Platform: image})
	}
	for i := range 3 {
		c := w.computer(i)
		node := w.ready(c.HostName)
		want := fmt.Sprintf("azure:///subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets/%s/virtualMachines/%d", w.name, i)
		if node.Spec.ProviderID != want {
			t.Errorf("provider id %s, want %s", node.Spec.ProviderID, want)
		}
		if got := node.Labels[corev1.LabelTopologyZone]; got != "westeurope-1" {
			t.Errorf("zone %q", got)
		}
		if got := node.Status.Capacity.Cpu().Value(); got != 4 {
			t.Errorf("%d processors, want 4", got)
		}
		if node.Status.NodeInfo.OSImage != "Ubuntu 24.04 LTS" {
			t.Errorf("OS %q", node.Status.NodeInfo.OSImage)
		}
		if got := strings.TrimSpace(w.file(c.OSDisk, "etc/machine-id")); got != node.Status.NodeInfo.MachineID || len(got) != 32 {
			t.Errorf("machine-id %q on disk, %q in the cluster", got, node.Status.NodeInfo.MachineID)
		}
		machineIDs[node.Status.NodeInfo.MachineID] = true
		addresses[node.Status.Addresses[0].Address] = true
		if a, _ := w.substrate.PrivateAddress(c.ID); a.Addr().String() != node.Status.Addresses[0].Address {
			t.Errorf("Azure says %v, the node %v", a, node.Status.Addresses)
		}
		hostKeys[w.file(c.OSDisk, "etc/ssh/ssh_host_ed25519_key")] = true
		if got := w.file(c.OSDisk, "etc/pool.conf"); got != "pool one" {
			t.Errorf("write_files wrote %q", got)
		}
		if !strings.Contains(w.file(c.OSDisk, "var/lib/waagent/ovf-env.xml"), "CustomData") {
			t.Error("ovf-env.xml lacks customData")
		}
		w.consoleSays(c, "Successfully registered node "+c.HostName) // a moment after it is
	}
	if len(machineIDs) != 3 || len(addresses) != 3 || len(hostKeys) != 3 {
		t.Errorf("%d machine ids, %d addresses, %d host keys among 3 nodes", len(machineIDs), len(addresses), len(hostKeys))
	}
	if err := w.substrate.Boot(t.Context(), w.computer(0)); err != nil {
		t.Errorf("booting again: %v", err)
	}
}

func TestPowerOff(t *testing.T) {
	for _, graceful := range []bool{true, false} {
		t.Run(fmt.Sprintf("graceful=%v", graceful), func(t *testing.T) {
			w := newWorld(t)
			c := w.boot(0, azsim.Source{Platform: image})
			before := w.ready(c.HostName)
			if err := w.substrate.Shutdown(t.Context(), c.ID, graceful); err != nil {
				t.Fatal(err)
			}
			if graceful {
				got := readiness(w.node(c.HostName))
				if got.Status != corev1.ConditionFalse || got.Reason != "KubeletNotReady" || got.Message != "node is shutting down" {
					t.Errorf("as soon as it is off: %+v", got)
				}
			}
			if !graceful { // which takes most of a minute
				w.eventually("the node counts as Unknown", func(ctx context.Context) error {
					if got := readiness(w.node(c.HostName)); got.Status != corev1.ConditionUnknown {
						return fmt.Errorf("%s %s", got.Status, got.Reason)
					}
					return nil
				})
			}
			if entries, err := os.ReadDir(filepath.Join(w.substrate.Tree(c.OSDisk), "run")); err != nil || len(entries) > 0 {
				t.Errorf("/run of a computer that is off: %v, %v", entries, err)
			}
			c.Provision = false
			if err := w.substrate.Boot(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			after := w.ready(c.HostName)
			if after.UID != before.UID || after.Status.NodeInfo.MachineID != before.Status.NodeInfo.MachineID {
				t.Error("the node came back as another")
			}
			if after.Status.NodeInfo.BootID == before.Status.NodeInfo.BootID {
				t.Error("the boot id is the same after a boot")
			}
		})
	}
}

func TestRemoveDeletesTheNode(t *testing.T) {
	w := newWorld(t)
	on, off := w.boot(0, azsim.Source{Platform: image}), w.boot(1, azsim.Source{Platform: image})
	for _, c := range []azsim.Computer{on, off} {
		w.ready(c.HostName)
	}
	if err := w.substrate.Shutdown(t.Context(), off.ID, false); err != nil {
		t.Fatal(err)
	}
	for _, c := range []azsim.Computer{on, off} {
		for range 2 {
			if err := w.substrate.Remove(t.Context(), c.ID); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.client.CoreV1().Nodes().Get(t.Context(), c.HostName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("node of a removed instance: %v", err)
		}
		if _, err := os.Stat(w.substrate.Tree(c.OSDisk)); err != nil {
			t.Errorf("its disk: %v", err)
		}
	}
}

// generalize removes what makes the tree the donor's, with exceptions.
func (w *world) generalize(v azsim.Volume, except ...string) {
	w.Helper()
	root := w.substrate.Tree(v)
	for _, name := range []string{"etc/machine-id", "var/lib/kubelet/pki", "etc/kubernetes/kubelet.conf", "var/lib/cloud", "etc/hostname"} {
		kept := false
		for _, e := range except {
			kept = kept || e == name
		}
		if kept {
			continue
		}
		if err := os.RemoveAll(filepath.Join(root, name)); err != nil {
			w.Fatal(err)
		}
	}
	for _, e := range except {
		if e == "etc/machine-id" {
			return
		}
	}
	if err := os.WriteFile(filepath.Join(root, "etc/machine-id"), nil, 0o444); err != nil {
		w.Fatal(err)
	}
}

func (w *world) consoleSays(c azsim.Computer, text string) {
	w.Helper()
	w.eventually("the console of "+c.Name+" says "+text, func(ctx context.Context) error {
		console, err := w.substrate.Console(ctx, c.ID)
		if err != nil || strings.Contains(string(console), text) {
			return err
		}
		return fmt.Errorf("%s", console)
	})
}

// A clone is what its disk makes of it.
func TestClones(t *testing.T) {
	w := newWorld(t)
	donor := w.boot(0, azsim.Source{Platform: image})
	was := w.ready(donor.HostName)
	noop := func(c *azsim.Computer) { c.CustomData = []byte("#cloud-config\n") }
	clone := func(i int, prepare func(azsim.Volume)) azsim.Computer {
		t.Helper()
		copied := azsim.Volume(fmt.Sprintf("%s-image-%d", w.name, i))
		if err := w.substrate.CreateVolume(t.Context(), copied, azsim.Source{Volume: donor.OSDisk}); err != nil {
			t.Fatal(err)
		}
		prepare(copied)
		return w.boot(i, azsim.Source{Volume: copied}, noop)
	}
	absent := func(c azsim.Computer) {
		t.Helper()
		if _, err := w.client.CoreV1().Nodes().Get(t.Context(), c.HostName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("node %s: %v, want none", c.HostName, err)
		}
	}

	good := clone(1, func(v azsim.Volume) { w.generalize(v) })
	node := w.ready(good.HostName)
	if node.Status.NodeInfo.MachineID == was.Status.NodeInfo.MachineID {
		t.Error("a generalised clone has the donor's machine-id")
	}

	twin := clone(2, func(v azsim.Volume) { w.generalize(v, "etc/machine-id") })
	if got := w.ready(twin.HostName).Status.NodeInfo.MachineID; got != was.Status.NodeInfo.MachineID {
		t.Errorf("a clone with the donor's machine-id has %s", got)
	}

	impostor := clone(3, func(v azsim.Volume) { w.generalize(v, "var/lib/kubelet/pki", "etc/kubernetes/kubelet.conf") })
	w.consoleSays(impostor, "not allowed")
	absent(impostor)

	outcast := clone(4, func(v azsim.Volume) {
		w.generalize(v)
		if err := os.Remove(filepath.Join(w.substrate.Tree(v), "etc/kubernetes/bootstrap-kubeconfig")); err != nil {
			t.Fatal(err)
		}
	})
	w.consoleSays(outcast, "no kubeconfig and no bootstrap kubeconfig")
	absent(outcast)

	double := clone(5, func(v azsim.Volume) {
		w.generalize(v, "etc/hostname", "var/lib/kubelet/pki", "etc/kubernetes/kubelet.conf")
		cfg := filepath.Join(w.substrate.Tree(v), "etc/cloud/cloud.cfg")
		if err := os.WriteFile(cfg, []byte("preserve_hostname: true\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	})
	w.consoleSays(double, "is registered already for")
	absent(double)
	if got := w.node(donor.HostName); got.Status.NodeInfo.SystemUUID != double.VMID {
		t.Errorf("the donor's node is still %s, though a double took its name", got.Status.NodeInfo.SystemUUID)
	}
}

func TestLeaseIsRenewed(t *testing.T) {
	w := newWorld(t)
	c := w.boot(0, azsim.Source{Platform: image})
	w.ready(c.HostName)
	var first time.Time
	w.eventually("two renewals", func(ctx context.Context) error {
		lease, err := w.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, c.HostName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if first.IsZero() {
			first = lease.Spec.RenewTime.Time
		}
		if !lease.Spec.RenewTime.After(first) {
			return fmt.Errorf("renewed at %s only", first)
		}
		return nil
	})
}

// The labels are those of Kubernetes' cloud provider for Azure.
func TestZoneOfANode(t *testing.T) {
	w := newWorld(t)
	for i, c := range []struct{ zone, domain, want string }{{"2", "0", "westeurope-2"}, {"", "3", "3"}} {
		got := w.boot(i, azsim.Source{Platform: image}, func(computer *azsim.Computer) { computer.Zone, computer.FaultDomain = c.zone, c.domain })
		if label := w.ready(got.HostName).Labels[corev1.LabelTopologyZone]; label != c.want {
			t.Errorf("zone %q, fault domain %s: the label is %q, want %q", c.zone, c.domain, label, c.want)
		}
	}
}

func TestLeaseFollowsTheNode(t *testing.T) {
	w := newWorld(t)
	leases := w.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	c := w.boot(0, azsim.Source{Platform: image})
	w.ready(c.HostName)
	var lease *coordinationv1.Lease
	w.eventually("the lease", func(ctx context.Context) (err error) {
		lease, err = leases.Get(ctx, c.HostName, metav1.GetOptions{})
		return err
	})
	if err := w.substrate.Shutdown(t.Context(), c.ID, false); err != nil {
		t.Fatal(err)
	}
	// As if a Node of the same name had left it behind.
	patch := []byte(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"` + c.HostName + `","uid":"of-a-node-before"}]}}`)
	if _, err := leases.Patch(t.Context(), lease.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Provision = false
	if err := w.substrate.Boot(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	node := w.ready(c.HostName)
	w.eventually("the lease belongs to the Node that is there", func(ctx context.Context) error {
		lease, err := leases.Get(ctx, c.HostName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].UID != node.UID {
			return fmt.Errorf("owned by %+v, the Node is %s", lease.OwnerReferences, node.UID)
		}
		return nil
	})
}
