package beside

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ortet/ortet/test/azclient"
)

const (
	pool     = "pool1"
	patience = 3 * time.Minute // for a capture, which takes some ten seconds
	speed    = "300"
)

// spec is a pool of five. Its customData joins the cluster: what that leaves on a node
// is azsim's to do.
const spec = `
scaleSets:
  - name: pool1
    capacity: 5
    body:
      sku: {name: Standard_D2s_v5}
      properties:
        upgradePolicy: {mode: Manual}
        virtualMachineProfile:
          osProfile: {computerNamePrefix: pool1, customData: I2Nsb3VkLWNvbmZpZwpydW5jbWQ6Ci0ga3ViZWFkbSBqb2luCg==, adminUsername: azureuser, linuxConfiguration: {disablePasswordAuthentication: true, ssh: {publicKeys: [{path: /home/azureuser/.ssh/authorized_keys, keyData: ssh-ed25519 AAAA}]}}}
          storageProfile:
            imageReference: {publisher: Debian, offer: debian-12, sku: 12-gen2, version: latest}
            osDisk: {createOption: FromImage}
`

// kinds are the pool's body by $POOL: "" is Uniform.
var kinds = map[string]string{"": spec, "flexible": strings.Replace(spec, `        virtualMachineProfile:
`, `        orchestrationMode: Flexible
        platformFaultDomainCount: 1
        virtualMachineProfile:
          networkProfile: {networkApiVersion: "2020-11-01", networkInterfaceConfigurations: [{name: nic, properties: {primary: true, ipConfigurations: [{name: ip}]}}]}
`, 1)}

// machines returns the id of the machine behind each computer name.
func machines(t *testing.T, c *azclient.Cloud) map[string]string {
	t.Helper()
	list, err := c.Members(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, vm := range list {
		out[strings.ToLower(vm.Computer)] = vm.VMID
	}
	return out
}

// scaleDown starts the autoscaler, much quicker than a capture's steps. The function
// that it gives ends it, and gives the nodes whose deletion it asked for.
func scaleDown(t *testing.T, k cluster, c *azclient.Cloud, minimum string) func() []string {
	t.Helper()
	var asked bytes.Buffer
	a := exec.Command(filepath.Join(azclient.Build(t, azclient.Own(t), "./scaledown"), "scaledown"),
		"--azure-config="+c.AzureConfig, "--api-server="+k.URL, "--pool="+pool, "--minimum="+minimum, "--scan-interval=100ms")
	a.Stdout, a.Stderr = &asked, t.Output()
	a.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	return func() []string {
		t.Helper()
		if err := errors.Join(a.Process.Signal(syscall.SIGTERM), a.Wait()); err != nil {
			t.Errorf("the autoscaler: %v", err)
		}
		return strings.Fields(strings.ReplaceAll(asked.String(), "delete ", ""))
	}
}

// runCapture runs ortet capture, and returns what it printed.
func runCapture(t *testing.T, k cluster, c *azclient.Cloud, bin string, args ...string) ([]byte, error) {
	t.Helper()
	home := t.TempDir()
	limited, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	capture := exec.CommandContext(limited, filepath.Join(bin, "ortet"), append([]string{"capture", "--image=example.invalid/ortet:1", "--accept-pool-credentials",
		"--azure-config=" + c.AzureConfig, "--kubeconfig=" + k.kubeconfig}, args...)...)
	capture.Env = []string{"SSL_CERT_FILE=" + os.Getenv("SSL_CERT_FILE"), "HOME=" + home, "PATH=" + home}
	capture.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	began := time.Now()
	out, err := capture.CombinedOutput()
	t.Logf("the capture took %s", time.Since(began).Round(time.Second))
	return out, err
}

// While an autoscaler deletes every empty node that nothing protects, down to two, a
// capture ends with 0 at its first try, and the two are its donor and its workbench.
func TestCaptureBesideTheAutoscaler(t *testing.T) {
	k := startCluster(t)
	bin := azclient.Build(t, azclient.Root(t), "./cmd/ortet", "./cmd/ortet-node")
	c := azclient.Serve(t, kinds[os.Getenv("POOL")], "--speed", speed, "--kubeconfig", k.kubeconfig, "--program", "ortet-node="+filepath.Join(bin, "ortet-node"))
	nodes := k.awaitReady(t, 5)
	donor, bench := nodes[0].Metadata.Name, nodes[1].Metadata.Name
	before := machines(t, c)

	stop := scaleDown(t, k, c, "2")
	out, err := runCapture(t, k, c, bin, donor, "--workbench="+bench)
	asked := stop()
	if err != nil {
		t.Errorf("ortet capture: %v\n%s", err, out)
	}

	want := slices.Sorted(maps.Keys(before))[2:]
	if got := slices.Sorted(slices.Values(asked)); !slices.Equal(slices.Compact(got), want) {
		t.Errorf("the autoscaler deletes %q, want %q: donor %s, workbench %s", asked, want, donor, bench)
	}
	kept := map[string]string{donor: before[donor], bench: before[bench]}
	if after := machines(t, c); !maps.Equal(after, kept) {
		t.Errorf("machines %v, want %v", after, kept)
	}
	for _, n := range k.awaitReady(t, 2) {
		if v, is := n.Metadata.Annotations[azclient.ScaleDownDisabled]; is || n.Spec.Unschedulable || kept[n.Metadata.Name] == "" {
			t.Errorf("node %s: unschedulable %v, %s=%q", n.Metadata.Name, n.Spec.Unschedulable, azclient.ScaleDownDisabled, v)
		}
	}
	set, err := c.Sets.Get(t.Context(), c.Group, pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	if image := set.Properties.VirtualMachineProfile.StorageProfile.ImageReference; image.ID == nil || !strings.Contains(*image.ID, "/versions/") {
		t.Errorf("the model uses %+v, want the new version", image)
	}
}
