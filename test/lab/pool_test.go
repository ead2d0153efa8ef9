//go:build e2e && linux

package lab

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	rootfs "github.com/ortet/ortet/hack/lab"
	"github.com/ortet/ortet/test/azsimserver"
	"github.com/ortet/ortet/test/controlplane"
	"github.com/ortet/ortet/test/port"
)

const (
	poolName = "k8s-pool1-12345678-vmss"
	workers  = 3
	// speed makes Azure's own operations take seconds; what machines really do
	// takes as long as it takes.
	speed = 300
	// ARM as machines and their pods see it.
	armAddress = "10.96.0.2"
	// ortetImage is on the machines' disks. No registry has it.
	ortetImage = "lab.ortet.invalid/ortet:v0.1.0"
	// prepulledImage is on the donor alone. No registry has it.
	prepulledImage = "lab.ortet.invalid/prepulled:1"
)

// A lab is a cluster whose pool are real machines of a simulated Azure.
type lab struct {
	checkout string
	dir      string
	bin      string
	cp       *controlplane.ControlPlane
	client   kubernetes.Interface
	// kubeconfig is an administrator's.
	kubeconfig string
	azure      *azsimserver.Azure
	machines   *machines
	// nameServer is azsim's flag; "" is one that answers.
	nameServer string
}

// newLab starts all but the pool, in a folder of that name. bake makes the
// machines' disk images from the platform's, where it is not nil, by the marketplace's
// name ("*" for all others); frontends are more addresses in the machines' network,
// LISTEN=TARGET. What newLab started ends with the test; what is left on the host then
// fails it.
func newLab(ctx context.Context, t *testing.T, line *timeline, name string, bake func(l *lab, disk string) map[string]string, frontends ...string) *lab {
	t.Helper()
	line.begin("binaries, the machines' disk image")
	l, binary, disk := prepareLab(ctx, t, name)
	images := map[string]string{"*": disk}
	if bake != nil {
		images = bake(l, disk)
	}

	line.begin("control plane and azsim")
	l.cp, l.client = startCluster(ctx, t, l.dir, binary)
	l.kubeconfig = l.cp.Kubeconfig
	l.startAzure(ctx, t, images, append([]string{fmt.Sprintf("%s=127.0.0.1:%d", rootfs.APIServerFrontend, l.cp.Port())}, frontends...)...)
	return l
}

// prepareLab builds what a lab in a folder of that name runs. binary is the control
// plane's, disk the platform's image.
func prepareLab(ctx context.Context, t *testing.T, name string) (l *lab, binary, disk string) {
	t.Helper()
	l = &lab{}
	l.checkout, l.dir = clearGround(t, name, filepath.Join("azure", "machine"))
	l.machines = &machines{dir: filepath.Join(l.dir, "azure", "machine")}
	l.bin = filepath.Join(l.dir, "bin")
	if err := os.MkdirAll(l.bin, 0o700); err != nil {
		t.Fatal(err)
	}
	binary, err := controlplane.Binary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	l.run(ctx, t, "go", "build", "-trimpath", "-o", l.bin+"/", "./cmd/ortet", "./cmd/azsim")
	l.run(ctx, t, filepath.Join("hack", "agent.sh"), filepath.Join(l.bin, "ortet-node"))
	if disk, err = rootfs.BaseImage(ctx, l.checkout, binary, testWriter{t}); err != nil {
		t.Fatal(err)
	}
	return l, binary, disk
}

// startAzure starts azsim, which ends with the test.
func (l *lab) startAzure(ctx context.Context, t *testing.T, images map[string]string, frontends ...string) {
	t.Helper()
	arm := port.Loopback(t) // machines are given it before azsim listens there
	args := []string{"--name", armAddress, "--frontend", net.JoinHostPort(armAddress, "443") + "=" + arm}
	for name, file := range images {
		args = append(args, "--image", name+"="+file)
	}
	for _, f := range frontends {
		args = append(args, "--frontend", f)
	}
	if l.nameServer != "" {
		args = append(args, "--name-server", l.nameServer)
	}
	var err error
	l.azure, err = azsimserver.Start(ctx, azsimserver.Config{
		Dir: filepath.Join(l.dir, "azure"), Bin: l.bin, Speed: speed, Kubeconfig: l.kubeconfig,
		Instances: azsimserver.Machine, Listen: arm,
		Args: args,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		end(t, l.azure.Stop)
		assertNothingLeft(t, l.machines.dir)
		if t.Failed() {
			t.Logf("the last of azsim's log:\n%s", l.azure.Log())
			return // the logs stay for whoever looks
		}
		if err := os.RemoveAll(l.dir); err != nil {
			t.Error(err)
		}
	})
}

// end ends something within bounds, even when the test's context has ended.
func end(t *testing.T, stop func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := stop(ctx); err != nil {
		t.Error(err)
	}
}

// buildImages makes the images that no registry has.
func (l *lab) buildImages(ctx context.Context, t *testing.T) {
	t.Helper()
	l.buildOrtet(ctx, t)
	l.run(ctx, t, "go", "build", "-trimpath", "-o", filepath.Join(l.bin, "prepulled"), "./hack/lab/images/web")
	l.run(ctx, t, "go", "run", "./hack/image", "-name", prepulledImage, "-out", l.image("prepulled"), filepath.Join(l.bin, "prepulled"))
}

// buildOrtet makes the image that the charts name.
func (l *lab) buildOrtet(ctx context.Context, t *testing.T) {
	t.Helper()
	l.run(ctx, t, "go", "run", "./hack/image", "-name", ortetImage, "-out", l.image("ortet"),
		filepath.Join(l.bin, "ortet"), filepath.Join(l.bin, "ortet-node"))
}

func (l *lab) image(name string) string { return filepath.Join(l.dir, name+".tar") }

// run runs a program in the checkout and gives its standard output.
func (l *lab) run(ctx context.Context, t *testing.T, argv ...string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = l.checkout
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v: %s%s", argv, err, errs.Bytes(), out.Bytes())
	}
	return out.String()
}

// createPool makes the pool as an operator of a cluster without managed nodes
// does: a scale set of the platform's image, and custom data that makes nodes
// of it. It returns when its machines have booted.
func (l *lab) createPool(ctx context.Context, t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := l.azure.Create(ctx, azsimserver.Pool{Name: poolName, Capacity: workers, CustomData: l.nodeData(ctx, t)}); err != nil {
		t.Fatalf("create the pool: %v", err)
	}
}

// nodeData is custom data that makes a node of a machine by a bootstrap token.
func (l *lab) nodeData(ctx context.Context, t *testing.T) string {
	t.Helper()
	bootstrap, err := l.cp.BootstrapKubeconfig(ctx, rootfs.APIServer, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	pool := rootfs.Pool{BootstrapKubeconfig: bootstrap, CA: l.cp.CA()}
	for _, f := range []struct {
		path, mode string
		from       []string
	}{
		{"/etc/kubernetes/azure.json", "0600", []string{l.azure.Endpoint.AzureConfig}},
		{"/etc/kubernetes/azurestackcloud.json", "0600", []string{filepath.Join(l.azure.Dir, "azurestackcloud.json")}},
		// Who signs Azure's certificates, and who its metadata service's.
		{"/etc/ssl/certs/ca-certificates.crt", "0644", []string{l.azure.Endpoint.CAFile, l.azure.Endpoint.AttestationCAFile}},
	} {
		file := rootfs.File{Path: f.path, Mode: f.mode}
		for _, name := range f.from {
			file.Content = append(file.Content, l.asNodesSee(t, name)...)
		}
		pool.Files = append(pool.Files, file)
	}
	data, err := rootfs.CustomData(pool)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// asNodesSee is a file of azsim's with the address at which machines reach ARM.
func (l *lab) asNodesSee(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.ReplaceAll(content, []byte(l.azure.Endpoint.ResourceManager), []byte("https://"+armAddress))
}

// pull puts an image into a machine's image store, in a registry's stead.
func (l *lab) pull(ctx context.Context, t *testing.T, name string, hosts ...string) {
	t.Helper()
	content, err := os.ReadFile(l.image(name))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hosts { // finds the machines, before they are used side by side
		if _, err := l.machines.container(ctx, h); err != nil {
			t.Fatal(err)
		}
	}
	var group errgroup.Group
	for _, h := range hosts {
		group.Go(func() error {
			id, err := l.machines.container(ctx, h)
			if err != nil {
				return err
			}
			_, err = l.machines.runc(ctx, content, "exec", id, "ctr", "--namespace", "k8s.io", "images", "import", "-")
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// instances returns the pool's instances by their node's name.
func (l *lab) instances(ctx context.Context, t *testing.T) map[string]*armcompute.VirtualMachineScaleSetVM {
	t.Helper()
	f, err := l.azure.Clients()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*armcompute.VirtualMachineScaleSetVM{}
	pager := f.NewVirtualMachineScaleSetVMsClient().NewListPager(l.azure.Endpoint.ResourceGroup, poolName, nil)
	for pager.More() {
		page, err := pager.NextPage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, vm := range page.Value {
			all[strings.ToLower(*vm.Properties.OSProfile.ComputerName)] = vm
		}
	}
	return all
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(string(bytes.TrimSpace(p)))
	return len(p), nil
}
