package beside

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/ortet/ortet/test/azclient"
)

// growsBeside adds a node as cluster-autoscaler does, as soon as it reads a capacity of more than was.
func growsBeside(t *testing.T, c *azclient.Cloud, was int64) error {
	for t.Context().Err() == nil {
		set, err := c.Sets.Get(t.Context(), c.Group, pool, nil)
		if err != nil {
			return err
		}
		if *set.SKU.Capacity > was {
			p, err := c.Sets.BeginCreateOrUpdate(t.Context(), c.Group, pool, armcompute.VirtualMachineScaleSet{
				Name: set.Name, Location: set.Location, SKU: &armcompute.SKU{Name: set.SKU.Name, Tier: set.SKU.Tier, Capacity: to.Ptr(*set.SKU.Capacity + 1)},
			}, nil)
			if err == nil {
				_, err = p.PollUntilDone(t.Context(), nil)
			}
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return t.Context().Err()
}

// A capture adds its donor while an autoscaler adds a node and deletes empty ones: the donor is left
// alone until Ortet deletes it, and the pool has what the autoscaler made of it.
func TestFreshBesideTheAutoscaler(t *testing.T) {
	if !alone(t) {
		return
	}
	k := startCluster(t)
	bin := azclient.Build(t, azclient.Root(t), "./cmd/ortet", "./cmd/ortet-node")
	few := strings.Replace(kinds[os.Getenv("POOL")], "capacity: 5", "capacity: 3", 1)
	c := azclient.Serve(t, few, "--speed", speed, "--kubeconfig", k.kubeconfig, "--program", "ortet-node="+filepath.Join(bin, "ortet-node"))
	k.awaitReady(t, 3)
	before := machines(t, c)

	stop := scaleDown(t, k, c, "4") // with the donor
	grown := make(chan error, 1)
	go func() { grown <- growsBeside(t, c, 3) }()
	out, err := runCapture(t, k, c, bin, "--pool="+pool, "--fresh", "--canary=0", "--canary-soak=2s")
	asked := slices.Compact(slices.Sorted(slices.Values(stop())))
	m := regexp.MustCompile(`captured\s+(\S+)\s+as`).FindSubmatch(out)
	if err != nil || m == nil {
		t.Fatalf("ortet capture: %v\n%s", err, out)
	}
	if err := <-grown; err != nil {
		t.Fatal(err)
	}
	donor := string(m[1])
	if len(asked) == 0 || slices.Contains(asked, donor) {
		t.Errorf("the autoscaler deletes %q, want some, and not the donor %s", asked, donor)
	}
	after, want := machines(t, c), 3+1-len(asked)
	set, err := c.Sets.Get(t.Context(), c.Group, pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, left := after[donor]; left || len(after) != want || *set.SKU.Capacity != int64(want) {
		t.Errorf("capacity %d, machines %v, want %d without the donor %s", *set.SKU.Capacity, after, want, donor)
	}
	for name, id := range before {
		if _, is := slices.BinarySearch(asked, name); !is && after[name] != id {
			t.Errorf("machine %s is lost: %v", name, after)
		}
	}
	for _, n := range k.awaitReady(t, want) {
		if v, is := n.Metadata.Annotations[azclient.ScaleDownDisabled]; is || n.Spec.Unschedulable {
			t.Errorf("node %s: unschedulable %v, %s=%q", n.Metadata.Name, n.Spec.Unschedulable, azclient.ScaleDownDisabled, v)
		}
	}
	t.Logf("donor %s; deleted by the autoscaler %q; left %q", donor, asked, slices.Sorted(maps.Keys(after)))
}
