package beside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/ortet/ortet/test/azclient"
)

// podSpec is a cluster with a pool that pods scale from 0 to 3, and one that they do not. The
// principal has what ortet cluster gives identity ortet-autoscaler, and is who the client is.
var podSpec = strings.NewReplacer("capacity: 5", "capacity: 0", "body:\n", "body:\n      tags: {cluster-autoscaler-enabled: \"true\", cluster-autoscaler-name: demo, min: \"0\", max: \"3\"}\n").Replace(spec) +
	strings.NewReplacer("\nscaleSets:\n", "", "pool1", "fixed", "capacity: 5", "capacity: 0").Replace(spec) + `
principals:
  - name: ortet-autoscaler
    clientId: 00000000-0000-4000-8000-0000000000aa
    secret: only-here
    roles:
      - {role: Reader, scope: /subscriptions/5ca1ab1e-0000-4000-8000-000000000002/resourceGroups/GROUP}
      - {role: Virtual Machine Contributor, scope: /subscriptions/5ca1ab1e-0000-4000-8000-000000000002/resourceGroups/GROUP/providers/Microsoft.Compute/virtualMachineScaleSets/pool1}
`

// pods sets how many pods of 900m each there are: a node of two cores has two.
func (c cluster) pods(t *testing.T, method string, n int) {
	t.Helper()
	for i := range n {
		url, body := c.URL+"/api/v1/namespaces/default/pods", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p%d"}, "spec": {"automountServiceAccountToken": false,
			"containers": [{"name": "c", "image": "example.invalid/c", "resources": {"requests": {"cpu": "900m"}}}]}}`, i)
		if method == http.MethodDelete {
			url, body = fmt.Sprintf("%s/p%d", url, i), `{"gracePeriodSeconds": 0}`
		}
		request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode >= 300 {
			t.Fatalf("%s %s: %s", method, url, answer.Status)
		}
	}
}

// phases counts the test's pods by phase.
func (c cluster) phases(t *testing.T) map[string]int {
	t.Helper()
	pods, err := c.Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, p := range pods {
		out[p.Status.Phase]++
	}
	return out
}

// scan acts once as cluster-autoscaler does: it finds its sets by their tags, makes room for
// pending pods by one sparse PUT, and deletes empty nodes when no pod is pending.
func scan(t *testing.T, k cluster, c *azclient.Cloud) {
	t.Helper()
	ctx := t.Context()
	sets, err := c.Sets.List(ctx, c.Group)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.GetVirtualMachineClient().List(ctx, c.Group); err != nil {
		t.Fatal(err)
	}
	pending, running := k.phases(t)["Pending"], k.phases(t)["Running"]
	for _, set := range sets {
		if tag := set.Tags["cluster-autoscaler-enabled"]; tag == nil || *tag != "true" {
			continue
		}
		members, err := c.Members(ctx, *set.Name)
		if err != nil {
			t.Fatal(err)
		}
		want := min((pending+running+1)/2, int((*set.Tags["max"])[0]-'0'))
		switch now := int(*set.SKU.Capacity); {
		case pending > 0 && want > now:
			p, err := c.Sets.BeginCreateOrUpdate(ctx, c.Group, *set.Name, armcompute.VirtualMachineScaleSet{
				Name: set.Name, Location: set.Location, SKU: &armcompute.SKU{Name: set.SKU.Name, Tier: set.SKU.Tier, Capacity: to.Ptr(int64(want))},
			}, nil)
			if err == nil {
				_, err = p.PollUntilDone(ctx, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
		case pending+running == 0 && now > 0:
			ids := []*string{}
			for _, m := range members {
				ids = append(ids, &m.InstanceID)
			}
			p, err := c.Sets.BeginDeleteInstances(ctx, c.Group, *set.Name, armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{InstanceIDs: ids},
				&armcompute.VirtualMachineScaleSetsClientBeginDeleteInstancesOptions{ForceDeletion: to.Ptr(false)})
			if err == nil {
				_, err = p.PollUntilDone(ctx, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// requests counts the requests to Azure by their action, with the code of a refusal.
func requests(t *testing.T, c *azclient.Cloud) map[string]int {
	t.Helper()
	data, err := os.ReadFile(c.AzureConfig)
	if err != nil {
		t.Fatal(err)
	}
	var config struct{ ResourceManagerEndpoint string }
	if err := json.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	answer, err := http.Get(config.ResourceManagerEndpoint + "azsim" + "/requests")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var list struct {
		Value []struct{ Action, Code string }
	}
	if err := json.NewDecoder(answer.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, r := range list.Value {
		if r.Action != "" {
			out[strings.ToLower(strings.TrimSpace(r.Action+" "+r.Code))]++
		}
	}
	return out
}

// alone reports whether the test has its process for itself, since Serve allows one azsim in each;
// otherwise it runs the test in another.
func alone(t *testing.T) bool {
	t.Helper()
	const alone = "ORTET_TEST_ALONE"
	if os.Getenv(alone) != "" {
		return true
	}
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	again.Env = append(os.Environ(), alone+"=1")
	out, err := again.CombinedOutput()
	if t.Logf("%s", out); err != nil {
		t.Fatal(err)
	}
	return false
}

// Six pending pods on a pool of 0 to 3 nodes: nodes come, pods run, and without pods the nodes
// go, with rights on this one scale set and reads of its group.
func TestPodsDecide(t *testing.T) {
	if !alone(t) {
		return
	}
	k := startCluster(t)
	c := azclient.Serve(t, strings.ReplaceAll(podSpec, "GROUP", "azsim"), "--speed", speed, "--kubeconfig", k.kubeconfig)
	began := time.Now()
	until := func(what string, done func() bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for !done() {
			scan(t, k, c)
			select {
			case <-ctx.Done():
				t.Fatalf("not so after %s: %s; pods %v", patience, what, k.phases(t))
			case <-tick.C:
			}
		}
		t.Logf("after %s: %s", time.Since(began).Round(100*time.Millisecond), what)
	}
	k.pods(t, http.MethodPost, 6)
	until("three nodes, and six pods run", func() bool { return k.phases(t)["Running"] == 6 && len(k.awaitReady(t, len(machines(t, c)))) == 3 })
	k.pods(t, http.MethodDelete, 6)
	until("no pod, and no machine", func() bool { return len(k.phases(t)) == 0 && len(machines(t, c)) == 0 })
	k.awaitReady(t, 0)
	asked := requests(t, c)
	const set = "microsoft.compute/virtualmachinescalesets"
	if asked[set+"/write"] != 1 || asked[set+"/delete/action"] != 1 {
		t.Errorf("writes of the scale set: %v", asked)
	}

	for what, try := range map[string]func() error{
		"scale another pool": func() error {
			_, err := c.Sets.BeginCreateOrUpdate(t.Context(), c.Group, "fixed", armcompute.VirtualMachineScaleSet{Location: to.Ptr("westeurope"), SKU: &armcompute.SKU{Name: to.Ptr("Standard_D2s_v5"), Capacity: to.Ptr(int64(9))}}, nil)
			return err
		},
		"delete another pool's machines": func() error {
			_, err := c.Sets.BeginDeleteInstances(t.Context(), c.Group, "fixed", armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{InstanceIDs: []*string{to.Ptr("0")}}, nil)
			return err
		},
		"make a scale set": func() error {
			_, err := c.Sets.BeginCreateOrUpdate(t.Context(), c.Group, "mine", armcompute.VirtualMachineScaleSet{Location: to.Ptr("westeurope"), SKU: &armcompute.SKU{Name: to.Ptr("Standard_D2s_v5"), Capacity: to.Ptr(int64(1))}}, nil)
			return err
		},
		"delete the server": func() error { return c.GetVirtualMachineClient().Delete(t.Context(), c.Group, "server") },
	} {
		var refused *azcore.ResponseError
		if err := try(); !errors.As(err, &refused) || refused.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %v, want 403", what, err)
		}
	}
	asked = requests(t, c)
	for _, action := range slices.Sorted(maps.Keys(asked)) {
		t.Logf("%4d  %s", asked[action], action)
	}
}
