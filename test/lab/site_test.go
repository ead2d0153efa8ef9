//go:build e2e && linux

package lab

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/azsim/machine"
	rootfs "github.com/ortet/ortet/hack/lab"
	"github.com/ortet/ortet/test/controlplane"
)

// A site is a cluster and machines without an Azure: what is asked of it here is
// how machines boot, not who made them.
type site struct {
	checkout, dir string
	cp            *controlplane.ControlPlane
	client        kubernetes.Interface
	machines      *machine.Substrate
	data          string // custom data that makes a node of a machine
}

// newSite starts a cluster, in a folder of that name. images makes the disk
// images, by name, from the platform's.
func newSite(ctx context.Context, t *testing.T, line *timeline, name string, images func(s *site, disk string) map[string]string) *site {
	t.Helper()
	line.begin("disk images")
	s := &site{}
	s.checkout, s.dir = clearGround(t, name, "machine")
	folder := filepath.Join(s.dir, "machine")
	t.Cleanup(func() {
		assertNothingLeft(t, folder)
		if !t.Failed() { // else the logs stay for whoever looks
			if err := os.RemoveAll(s.dir); err != nil {
				t.Error(err)
			}
		}
	})
	binary, err := controlplane.Binary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	disk, err := rootfs.BaseImage(ctx, s.checkout, binary, testWriter{t})
	if err != nil {
		t.Fatal(err)
	}
	all := images(s, disk)
	line.begin("control plane")
	s.cp, s.client = startCluster(ctx, t, s.dir, binary)
	token, err := s.cp.BootstrapKubeconfig(ctx, rootfs.APIServer, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	data, err := rootfs.CustomData(rootfs.Pool{BootstrapKubeconfig: token, CA: s.cp.CA()})
	if err != nil {
		t.Fatal(err)
	}
	s.data = string(data)
	s.machines, err = machine.New(machine.Config{
		Dir: folder, Images: all,
		Frontends: []machine.Frontend{{Listen: rootfs.APIServerFrontend, Target: fmt.Sprintf("127.0.0.1:%d", s.cp.Port())}},
		Log:       slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.machines.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// lastCommand is custom data's last, which starts the node.
const lastCommand = "- [systemctl, enable, --now, containerd.service, node-preparation.service, kubelet.service]"

// dataWith is the custom data with other commands in that one's stead.
func (s *site) dataWith(t *testing.T, commands ...string) string {
	t.Helper()
	before, _, ok := strings.Cut(s.data, lastCommand)
	if !ok {
		t.Fatalf("the pool's custom data does not end with %s", lastCommand)
	}
	return before + strings.Join(commands, "\n") + "\n"
}

func computer(name string, n int, data string) azsim.Computer {
	id := "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets/boot/virtualMachines/" + fmt.Sprint(n)
	vm := fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
	return azsim.Computer{
		ID: strings.ToLower(id), ResourceID: id, VMID: vm, Name: fmt.Sprintf("boot_%d", n), HostName: name, Location: "westeurope",
		OSDisk: azsim.Volume("/disks/" + name), CustomData: []byte(data), Provision: true,
		IMDS: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"compute":{"resourceId":%q,"location":"westeurope","zone":"1"},"vmId":%q,"storageProfile":{"imageReference":{"publisher":"lab","offer":"debian","sku":"12","version":%q}}}`, id, vm, name)
		}),
	}
}

// boot boots a machine and waits until its node is Ready.
func (s *site) boot(ctx context.Context, t *testing.T, c azsim.Computer) *corev1.Node {
	t.Helper()
	before, err := s.client.CoreV1().Nodes().Get(ctx, c.HostName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	if err := s.machines.Boot(ctx, c); err != nil {
		t.Fatalf("boot %s: %v", c.HostName, err)
	}
	var node *corev1.Node
	poll(ctx, t, c.HostName+" to be Ready", 2*time.Minute, func(ctx context.Context) (bool, error) {
		if node, err = s.client.CoreV1().Nodes().Get(ctx, c.HostName, metav1.GetOptions{}); err != nil {
			return false, ignoreNotFound(err)
		}
		return ready(*node) && node.Status.NodeInfo.BootID != before.Status.NodeInfo.BootID, nil
	})
	return node
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// sh runs a script in a machine as root and gives its standard output.
func (s *site) sh(ctx context.Context, t *testing.T, c azsim.Computer, script string) string {
	t.Helper()
	out, err := s.machines.Exec(ctx, c.ID, nil, "bash", "-c", script)
	if err != nil {
		t.Fatalf("on %s: %v: %s", c.HostName, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (s *site) run(ctx context.Context, t *testing.T, argv ...string) string {
	t.Helper()
	return (&lab{checkout: s.checkout}).run(ctx, t, argv...)
}
