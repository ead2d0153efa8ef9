package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/test/azsimserver"
	"github.com/ortet/ortet/test/kubesim/serve"
	"github.com/ortet/ortet/test/serverboot"
)

const (
	// noCapacity is the name of pools for which this Azure has no machines.
	noCapacity = "full"
	// unprivileged is added to ports below 1024, on which root alone may listen.
	unprivileged = 20000
	apiPort      = 6443
)

// elastic is an Azure with nothing in it, for ortet cluster, until ctx's end.
func elastic(ctx context.Context, out io.Writer, p plot) (err error) {
	if p.controlPlane != "" || p.pool != "" {
		return errors.New("CLUSTER takes neither POOL nor CONTROLPLANE: leave them empty")
	}
	dir, err := os.MkdirTemp("", "ortet-demo-")
	if err != nil {
		return err
	}
	defer cleanly(ctx, &err, func(context.Context) error { return os.RemoveAll(dir) })

	// Of each playground its own, so that two do not listen on the same ports.
	network := fmt.Sprintf("127.%d.%d.", 128+rand.IntN(127), rand.IntN(256))
	if err := listenable(network + "1"); err != nil {
		return err
	}
	say(out, "Starting a simulated Azure without resources, %d times as fast", speed)
	kube, err := serve.Start(filepath.Join(dir, "cluster"))
	if err != nil {
		return err
	}
	defer cleanly(ctx, &err, kube.Stop)
	azure, err := azsimserver.Start(ctx, azsimserver.Config{
		Dir: filepath.Join(dir, "azure"), Bin: "bin", Speed: speed, Kubeconfig: kube.Kubeconfig, Instances: azsimserver.Hollow, ClientCA: kube.CAFile,
		Spec: map[string]any{"publicAddresses": network + "0/24", "faults": []any{map[string]any{
			"name": "no capacity", "method": "PUT", "path": "/virtualMachineScaleSets/" + noCapacity + "$", "effect": "error", "status": 409, "code": "SkuNotAvailable",
			"message": "The requested size for resource '" + noCapacity + "' is currently not available in this location. Please try another size or deploy to a different location or different zone.",
		}}},
	})
	if err != nil {
		return err
	}
	defer cleanly(ctx, &err, azure.Stop)
	e, err := newElasticWorld(out, kube, azure)
	if err != nil {
		return err
	}
	if err := inviteElastic(out, dir, azure); err != nil {
		return err
	}
	e.run(ctx)
	say(out, "Ended; its files are removed, also your cluster.yaml. Close the shells that used it")
	return nil
}

// listenable reports whether a cluster's API server can listen in a network.
func listenable(address string) error {
	l, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(apiPort)))
	if err != nil {
		return fmt.Errorf("%w; end what listens on port %d of all addresses (ss -ltnp), such as a k3s of this computer", err, apiPort)
	}
	return l.Close()
}

// sshScript is ssh, with the ports at which the playground's servers listen.
const sshScript = `#!/bin/sh
before=
for a; do
	shift
	[ "$before" = -p ] && [ "$a" -lt 1024 ] && a=$((a + %d))
	before=$a
	set -- "$@" "$a"
done
exec %s "$@"
`

// inviteElastic says how to follow the tutorial.
func inviteElastic(out io.Writer, dir string, azure *azsimserver.Azure) error {
	work := filepath.Join(dir, "work")
	env, err := enter(dir, filepath.Join(dir, "kubeconfig"), "", fmt.Sprintf("export AZURE_SUBSCRIPTION_ID=%s\ncd %s\n", azure.Endpoint.Subscription, work), azure)
	err = errors.Join(err, os.Mkdir(work, 0o755),
		os.WriteFile(filepath.Join(work, "k3s"), []byte("stands in for k3s v1.36.3+k3s1\n"), 0o755),
		os.WriteFile(filepath.Join(work, "k3s-airgap-images-amd64.tar.zst"), []byte("stands in for k3s's images\n"), 0o644))
	if ssh, none := exec.LookPath("ssh"); none == nil { // ortet says that it is missing
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "bin", "ssh"), fmt.Appendf(nil, sshScript, unprivileged, ssh), 0o755))
	}
	if err != nil {
		return err
	}
	say(out, "This Azure is yours until Ctrl-C. In another terminal, to be closed afterwards:")
	fmt.Fprintf(out, `. %s
ortet cluster init --name tidy --location westeurope
`, env)
	fmt.Fprintf(out, `
The first line leads to a folder with stand-ins for k3s and its images. Go on as
docs/tutorials/first-cluster.md says; its end says what differs here. Azure has
no capacity for a pool with the name %s: add one, and see how up reports it.

`, noCapacity)
	return nil
}

// An elasticWorld plays the servers of clusters.
type elasticWorld struct {
	out    io.Writer
	kube   *serve.Cluster
	client kubernetes.Interface
	azure  serverboot.Subscription
	ssh    *sshServer
	tags   serverboot.Tags
	state  map[string]string       // by a VM's id
	open   map[string]net.Listener // by address
	said   string                  // the last error
}

func newElasticWorld(out io.Writer, kube *serve.Cluster, azure *azsimserver.Azure) (*elasticWorld, error) {
	e := &elasticWorld{out: out, kube: kube, state: map[string]string{}, open: map[string]net.Listener{}}
	config, err := kube.RESTConfig()
	if err != nil {
		return nil, err
	}
	if e.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	kubeconfig, err := os.ReadFile(kube.Kubeconfig)
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(kube.CAFile)
	if err != nil {
		return nil, err
	}
	arm, err := azure.Resources()
	if err != nil {
		return nil, err
	}
	e.azure = serverboot.Subscription{ARM: arm, ID: azure.Endpoint.Subscription}
	e.ssh, err = newSSHServer(map[string][]byte{
		"sudo cat /etc/rancher/k3s/k3s.yaml": kubeconfig,
		"sudo journalctl ":                   []byte("the playground's server has no journal\n"),
	})
	if err != nil {
		return nil, err
	}
	e.tags = serverboot.Tags{CAHash: fmt.Sprintf("sha256:%x", sha256.Sum256(ca)), HostKey: e.ssh.hostKey()}
	return e, nil
}

// run plays until ctx's end.
func (e *elasticWorld) run(ctx context.Context) {
	defer e.closeBut(nil)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		err := errors.Join(e.servers(ctx), e.roles(ctx))
		if text := fmt.Sprint(err); err != nil && ctx.Err() == nil && text != e.said {
			e.note("%s", text)
			e.said = text
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (e *elasticWorld) note(format string, args ...any) {
	fmt.Fprintf(e.out, "%s  %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// servers does what servers' machines did since the last observation.
func (e *elasticWorld) servers(ctx context.Context) error {
	all, err := e.azure.Servers(ctx)
	if err != nil {
		return err
	}
	var errs []error
	now, addresses := map[string]string{}, map[string]bool{}
	for _, s := range all {
		var err error
		before := e.state[s.ID]
		switch {
		case !s.Running && before == "" || s.Address == "":
			continue // Azure makes it
		case !s.Running:
			now[s.ID] = "stopped"
			err = s.State(ctx, now[s.ID])
		case before == "" || before == "stopped":
			now[s.ID] = "starting k3s"
			err = s.State(ctx, now[s.ID])
		default:
			now[s.ID] = "ready"
			if err = e.listen(s, addresses); err == nil {
				tags := e.tags
				tags.K3s = s.K3s
				err = s.Ready(ctx, tags)
			}
		}
		errs = append(errs, err)
		if now[s.ID] != before {
			e.note("server of cluster %s: %s", s.Cluster, now[s.ID])
		}
	}
	e.state = now
	e.closeBut(addresses)
	return errors.Join(errs...)
}

// listen has a server answer at its public address, and adds where it listens.
func (e *elasticWorld) listen(s serverboot.Server, addresses map[string]bool) error {
	e.ssh.login.Store(&login{s.User, s.AuthorizedKeys})
	port := s.SSHPort
	if port < 1024 {
		port += unprivileged
	}
	for port, open := range map[int]func(string) (net.Listener, error){
		apiPort: func(address string) (net.Listener, error) { return e.kube.Listen(address, s.FQDN) },
		port: func(address string) (net.Listener, error) {
			l, err := net.Listen("tcp", address)
			if err == nil {
				go e.ssh.serve(l)
			}
			return l, err
		},
	} {
		address := net.JoinHostPort(s.Address, strconv.Itoa(port))
		addresses[address] = true
		if e.open[address] != nil {
			continue
		}
		l, err := open(address)
		if err != nil {
			return err
		}
		e.open[address] = l
	}
	return nil
}

// closeBut ends listening at all other addresses.
func (e *elasticWorld) closeBut(addresses map[string]bool) {
	for address, l := range e.open {
		if !addresses[address] {
			_ = l.Close() // nothing is lost by it
			delete(e.open, address)
		}
	}
}

// roles labels Nodes as boot.py does.
func (e *elasticWorld) roles(ctx context.Context) error {
	const label = "node-role.kubernetes.io/"
	nodes, err := e.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "!" + label + "control-plane,!" + label + "worker"})
	if err != nil {
		return err
	}
	for _, n := range nodes.Items {
		role := "worker"
		if n.Name == "server" {
			role = "control-plane"
		}
		_, err := e.client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:"true"}}}`, label+role), metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
