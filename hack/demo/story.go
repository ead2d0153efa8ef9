package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/test/azsimserver"
)

const (
	pool = "k8s-pool1-12345678-vmss"
	// speed makes a capture that takes Azure an hour or two take some seconds.
	speed   = 1500
	budget  = 10 * time.Minute // for the whole demo
	workers = 3
)

// A plot selects what run shows.
type plot struct {
	controlPlane string
	canary       string // number of clones that prove the image first; "" is none
	bad          bool   // no node of the image can join; with keep, of that of the last node
	fresh        bool   // a donor is added for the capture
	pool         string // the pool's kind: "" is a Uniform scale set, "flexible" a Flexible one
	keep         bool   // the story's world only, until ctx's end
}

// run shows the story; every step is something that a user would do.
func run(ctx context.Context, out io.Writer, p plot) (err error) {
	if !p.keep {
		limited, cancel := context.WithTimeout(ctx, budget)
		defer cancel()
		ctx = limited
	}
	kind, change := "", (func(map[string]any))(nil)
	switch p.pool {
	case "":
	case "flexible":
		kind, change = ", a Flexible scale set", azsimserver.Flexible
	default:
		return fmt.Errorf("unknown kind of pool %q: leave POOL empty, or set it to flexible", p.pool)
	}
	if err := freePorts(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "ortet-demo-")
	if err != nil {
		return err
	}
	defer cleanly(ctx, &err, func(context.Context) error { return os.RemoveAll(dir) })

	kube, err := startCluster(ctx, out, dir, p.controlPlane)
	if err != nil {
		return err
	}
	defer cleanly(ctx, &err, kube.stop)

	say(out, "Starting a simulated Azure, %d times as fast, with a pool of %d hollow nodes%s", speed, workers, kind)
	bootstrap, err := kube.bootstrap(ctx, time.Now().Add(7*24*time.Hour))
	if err != nil {
		return err
	}
	azure, err := azsimserver.Start(ctx, azsimserver.Config{
		Dir: filepath.Join(dir, "azure"), Bin: "bin", Speed: speed, Kubeconfig: kube.kubeconfig, Instances: azsimserver.Hollow, ClientCA: kube.caFile,
		Pools: []azsimserver.Pool{{Name: pool, Capacity: workers, Change: change, CustomData: azsimserver.CloudConfig(map[string][]byte{
			"/etc/kubernetes/bootstrap-kubelet.conf": bootstrap,
		})}},
		Args: []string{"--status-interval=10s"}, // an online capture waits for the donor's next report
	})
	if err != nil {
		return err
	}
	defer cleanly(ctx, &err, azure.Stop)

	config, err := kube.client()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	nodes, err := azsimserver.AwaitReady(ctx, client, workers)
	if err != nil {
		return err
	}
	if err := deploy(ctx, client); err != nil {
		return err
	}
	if err := showNodes(ctx, out, client, azure, "The cluster's nodes"); err != nil {
		return err
	}
	if p.keep {
		bad := ""
		if p.bad {
			bad = nodes[len(nodes)-1]
			if err := spoil(dir, bad); err != nil {
				return err
			}
		}
		boot, err := azsimserver.RecordedBoot()
		if err != nil {
			return err
		}
		if err := invite(out, dir, kube, azure, nodes[0], bad); err != nil {
			return err
		}
		azsimserver.ReportBoots(ctx, client, boot)
		say(out, "Ended; its files are removed. Close the shells that used it")
		return nil
	}
	before, err := azure.Model(ctx, pool)
	if err != nil {
		return err
	}

	donor := nodes[0]
	args := []string{"capture", donor}
	if p.fresh {
		args = []string{"capture", "--pool=" + pool, "--fresh", "--canary=0", "--canary-soak=1s"}
	}
	args = append(args, "--image="+image, "--bootstrap=baked", "--accept-pool-credentials", "--extensions=all", "--keep-extension=*AKSLinuxBilling*", "--grace-period=30s")
	if p.canary != "" {
		args = append(args, "--canary="+p.canary, "--canary-soak=10s")
	}
	if p.bad {
		say(out, "Breaking what clones of %s join with: the address of the API server on the disks", donor)
		if err := spoil(dir, ""); err != nil {
			return err
		}
	}
	watching, stopWatch := context.WithCancel(ctx)
	during := watch(watching, client, azure, nodes)
	captureErr := ortet(ctx, out, kube, azure, args...)
	stopWatch()
	if w := <-during; p.fresh && captureErr == nil {
		fmt.Fprint(out, w.shown)
		if w.err != nil {
			return w.err
		}
		if err := showNodes(ctx, out, client, azure, "The cluster's nodes after the capture"); err != nil {
			return err
		}
	}
	after, err := azure.Model(ctx, pool)
	if err != nil {
		return err
	}
	if captureErr != nil {
		return refusedImage(ctx, out, kube, azure, p, before == after, captureErr)
	}
	say(out, "What changed in the scale set's model")
	// Where everything lies is the same for all, and long.
	short := strings.NewReplacer("/subscriptions/"+azure.Endpoint.Subscription+"/resourceGroups/"+azure.Endpoint.ResourceGroup+"/providers/Microsoft.Compute", "…")
	difference(out, short.Replace(before), short.Replace(after))

	say(out, "Scaling the pool out by one")
	if err := azure.ScaleOut(ctx, pool, 1); err != nil {
		return err
	}
	if _, err := azsimserver.AwaitReady(ctx, client, workers+1); err != nil {
		return err
	}
	if err := showNodes(ctx, out, client, azure, "The cluster's nodes"); err != nil {
		return err
	}
	if err := ortet(ctx, out, kube, azure, "status"); err != nil {
		return err
	}
	say(out, "The new node is Ready, and it came from the prototype. Cleaning up")
	return nil
}

// refusedImage ends the story of an image that its canary kept out of the pool.
func refusedImage(ctx context.Context, out io.Writer, kube cluster, azure *azsimserver.Azure, p plot, same bool, err error) error {
	if !p.bad || p.canary == "" {
		return err
	}
	if err := ortet(ctx, out, kube, azure, "status"); err != nil {
		return err
	}
	if !same {
		return errors.New("the scale set's model changed all the same")
	}
	say(out, "The image is bad, and the scale set's model is as it was. Cleaning up")
	return nil
}

// spoil has the bootstrap kubeconfig on a node's disk, or with "" on each disk, name an API
// server that is not there. Nodes that have joined do not read it again.
func spoil(dir, node string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return fs.WalkDir(root.FS(), ".", func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "bootstrap-kubelet.conf" {
			return err
		}
		name, _ := root.ReadFile(path.Join(path.Dir(at), "..", "hostname")) // images have none
		if node != "" && strings.TrimSpace(string(name)) != node {
			return nil
		}
		text, err := root.ReadFile(at)
		if err != nil {
			return err
		}
		return root.WriteFile(at, regexp.MustCompile(`server: .*`).ReplaceAll(text, []byte("server: https://127.0.0.1:1")), 0o600)
	})
}

// image is what ortet's pods are said to run; the nodes run bin/ortet-node for it.
const image = "example.invalid/ortet:1"

// errInterrupted is what the story ends with after Ctrl-C.
var errInterrupted = errors.New("interrupted; what it started has ended, and its files are removed")

// cleanly ends something even when ctx has ended, within bounds.
func cleanly(ctx context.Context, err *error, stop func(context.Context) error) {
	// What Ctrl-C broke off is no news; what cannot be cleaned up after it is.
	if *err != nil && errors.Is(ctx.Err(), context.Canceled) && !errors.Is(*err, errInterrupted) {
		*err = errInterrupted
	}
	within, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	*err = errors.Join(*err, stop(within))
}

func say(out io.Writer, format string, args ...any) {
	fmt.Fprintf(out, "\n== %s\n", fmt.Sprintf(format, args...))
}

// ortet runs the real binary as its user would, on this terminal.
func ortet(ctx context.Context, out io.Writer, kube cluster, azure *azsimserver.Azure, args ...string) error {
	say(out, "ortet %s", strings.ReplaceAll(strings.Join(args, " "), " --", " \\\n     --"))
	cmd := exec.CommandContext(ctx, filepath.Join("bin", "ortet"), append(args, "--azure-config="+azure.Endpoint.AzureConfig, "--kubeconfig="+kube.kubeconfig)...)
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+azure.Endpoint.CAFile)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, out, os.Stderr
	// In a process group of its own Ctrl-C reaches it once, from here, and it returns
	// the node to service.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 2 * time.Minute
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("ortet %s: %w", args[0], err)
	}
	return nil
}

// deploy gives the pool something to run, which it awaits, and a budget that the
// drain respects.
func deploy(ctx context.Context, client kubernetes.Interface) error {
	labels := map[string]string{"app": "web"}
	replicas := int32(6)
	if _, err := client.AppsV1().ReplicaSets("default").Create(ctx, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "example.invalid/web:1"}}},
			},
		},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	two := intstr.FromInt32(2)
	if _, err := client.PolicyV1().PodDisruptionBudgets("default").Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &two, Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	return wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		set, err := client.AppsV1().ReplicaSets("default").Get(ctx, "web", metav1.GetOptions{})
		return err == nil && set.Status.ReadyReplicas == replicas, err
	})
}

// difference prints the lines of two indented texts that are not in both.
func difference(out io.Writer, before, after string) {
	old, now := strings.Split(before, "\n"), strings.Split(after, "\n")
	// Longest common subsequence; the texts are short.
	table := make([][]int, len(old)+1)
	for i := range table {
		table[i] = make([]int, len(now)+1)
	}
	for i := len(old) - 1; i >= 0; i-- {
		for j := len(now) - 1; j >= 0; j-- {
			if old[i] == now[j] {
				table[i][j] = table[i+1][j+1] + 1
			} else {
				table[i][j] = max(table[i+1][j], table[i][j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(old) || j < len(now); {
		switch {
		case i < len(old) && j < len(now) && old[i] == now[j]:
			i, j = i+1, j+1
		case j == len(now) || (i < len(old) && table[i+1][j] >= table[i][j+1]):
			fmt.Fprintln(out, "  - "+old[i])
			i++
		default:
			fmt.Fprintln(out, "  + "+now[j])
			j++
		}
	}
}
