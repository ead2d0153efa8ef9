package main

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/test/azsimserver"
)

const (
	controllerPools  = 50
	controllerEach   = 100
	controllerOver   = 7 * time.Minute // a look at all pools takes four
	controllerFails  = 50              // one of so many never joins, and Azure says that it failed
	controllerReads  = 60
	controllerMemory = 150 << 20
)

// controllerCost is what the controller asks of Azure, and keeps in memory, with
// thousands of instances that have Nodes as large as real ones: a real `ortet
// controller` before a simulated Azure and a real API server, from its start on.
func controllerCost(ctx context.Context, o options) (_ []figure, err error) {
	var c benchCluster
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.start(ctx, forever); err != nil {
		return nil, err
	}
	var (
		mu    sync.Mutex
		times []time.Time
	)
	cloud := &azsim.Server{OnRequest: func(r azsim.Request) {
		if r.Action != "" {
			mu.Lock()
			times = append(times, time.Now())
			mu.Unlock()
		}
	}}
	defer cloud.Close()
	if err := makePools(ctx, cloud); err != nil {
		return nil, err
	}
	web := httptest.NewTLSServer(cloud)
	defer web.Close()
	if err := c.makeNodes(ctx, cloud); err != nil {
		return nil, err
	}
	if err := azureFiles(c.dir, web); err != nil {
		return nil, err
	}
	mu.Lock()
	times = nil
	mu.Unlock()
	run, cancel := context.WithTimeout(ctx, controllerOver+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(run, filepath.Join(o.bin, "ortet"), "controller", "--kubeconfig", c.cp.Kubeconfig, "--azure-config", filepath.Join(c.dir, "azure.json"),
		"--namespace", "default", "--metrics-address", "0", "--health-address", "0", "--arm-reads", strconv.Itoa(controllerReads))
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+filepath.Join(c.dir, "ca.pem"), "AZURE_ENVIRONMENT_FILEPATH="+filepath.Join(c.dir, "azurestackcloud.json"))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	waitErr := wait(ctx, controllerOver)
	peak, memErr := memoryOf(cmd.Process.Pid, "VmHWM:")
	told, toldErr := c.nodesTold(ctx)
	_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended, which Wait tells
	if err := errors.Join(memErr, toldErr, cmd.Wait(), waitErr); err != nil {
		return nil, err
	}
	mu.Lock()
	defer mu.Unlock()
	most := 0
	for i := range times {
		n := 0
		for j := i; j < len(times) && times[j].Sub(times[i]) < time.Minute; j++ {
			n++
		}
		most = max(most, n)
	}
	return []figure{
		atMost("requests-in-any-minute", float64(most), "requests", controllerReads),
		atMost("peak-memory", float64(peak)/(1<<20), "MiB", controllerMemory>>20),
		atLeast("nodes-told", float64(told), "nodes", controllerPools*controllerEach*(controllerFails-1)/controllerFails),
	}, nil
}

// memoryOf is a size of a process in bytes: VmHWM is the most that it ever had resident.
func memoryOf(pid int, name string) (int64, error) {
	kb, err := statusOf(strconv.Itoa(pid), name)
	return kb << 10, err
}

// statusOf is a number that the kernel reports of a process or thread, sizes in KiB.
func statusOf(process, name string) (int64, error) {
	text, err := os.ReadFile("/proc/" + process + "/status")
	if err != nil {
		return 0, err
	}
	for l := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(l, name); ok {
			return strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		}
	}
	return 0, fmt.Errorf("the kernel does not report %s of process %s", strings.TrimSuffix(name, ":"), process)
}

func makePools(ctx context.Context, s *azsim.Server) error {
	for i := range controllerPools {
		if err := (azsimserver.Pool{Name: fmt.Sprintf("pool%02d", i), Capacity: controllerEach, Change: azsimserver.Bare}).CreateIn(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// makeNodes makes a Node, with the images that a real one names, of all instances
// but one of so many.
func (c *benchCluster) makeNodes(ctx context.Context, s *azsim.Server) error {
	cloud, err := arm.New(arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: s.Credential(""), Transport: s.Transport()})
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(8)
	for i := range controllerPools {
		instances, err := cloud.Instances(ctx, fleet.ResourceID(fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/virtualMachineScaleSets/pool%02d",
			azsim.DefaultSubscription, azsim.DefaultResourceGroup, i)))
		if err != nil {
			return err
		}
		for j, instance := range instances {
			if j%controllerFails == 7 {
				continue
			}
			g.Go(func() error {
				now := metav1.Now()
				_, err := c.client.CoreV1().Nodes().Create(ctx, &corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: strings.ToLower(instance.HostName)},
					Spec:       corev1.NodeSpec{ProviderID: "azure://" + string(instance.ID)},
					Status: corev1.NodeStatus{Images: someImages(), NodeInfo: corev1.NodeSystemInfo{BootID: "11111111-2222-4333-8444-555555555555", SystemUUID: instance.VMID}, Conditions: []corev1.NodeCondition{
						{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status", LastTransitionTime: now, LastHeartbeatTime: now},
					}},
				}, metav1.CreateOptions{})
				return err
			})
		}
	}
	return g.Wait()
}

// nodesTold is how many Nodes have the condition.
func (c *benchCluster) nodesTold(ctx context.Context) (int, error) {
	told := 0
	for options := (metav1.ListOptions{Limit: 500}); ; {
		page, err := c.client.CoreV1().Nodes().List(ctx, options)
		if err != nil {
			return 0, err
		}
		for _, n := range page.Items {
			for _, condition := range n.Status.Conditions {
				if condition.Type == "ortet.io/BootSucceeded" && condition.Status == corev1.ConditionTrue {
					told++
				}
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return told, nil
		}
	}
}

// azureFiles writes what ortet reads to find the simulated Azure.
func azureFiles(dir string, web *httptest.Server) error {
	files := map[string]any{
		"azure.json": map[string]any{"cloud": "AzureStackCloud", "identitySystem": "adfs", "tenantId": "adfs", "subscriptionId": azsim.DefaultSubscription,
			"resourceGroup": azsim.DefaultResourceGroup, "aadClientId": azsim.DefaultClientID, "aadClientSecret": azsim.DefaultClientSecret, "resourceManagerEndpoint": web.URL + "/"},
		"azurestackcloud.json": map[string]any{"name": "AzureStackCloud", "resourceManagerEndpoint": web.URL + "/", "activeDirectoryEndpoint": web.URL + "/", "tokenAudience": web.URL + "/",
			"serviceManagementEndpoint": web.URL + "/", "graphEndpoint": web.URL + "/graph/"},
	}
	for name, content := range files {
		text, err := json.Marshal(content)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})
	return os.WriteFile(filepath.Join(dir, "ca.pem"), ca, 0o600)
}
