package azure_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

// missing has no disk, whatever is begun.
type missing struct{ azure.Cloud }

func (missing) Disk(context.Context, fleet.ResourceID) (fleet.Disk, error) {
	return fleet.Disk{}, fail(fleet.KindNotFound, 0)
}

func (missing) Instance(context.Context, fleet.ResourceID) (fleet.Instance, error) {
	return fleet.Instance{}, fail(fleet.KindNotFound, 0)
}

func (missing) Pool(context.Context, fleet.ResourceID) (fleet.Pool, error) {
	return fleet.Pool{}, fail(fleet.KindNotFound, 0)
}

func (missing) Begin(_ context.Context, c fleet.Change) (fleet.Token, error) {
	if _, attach := c.(fleet.AttachDisk); attach {
		return "", fail(fleet.KindNotFound, 0)
	}
	return "tok", nil
}

func TestSettled(t *testing.T) {
	create := fleet.CreateDisk{ID: "/disks/a"}
	for name, tc := range map[string]struct {
		begin []fleet.Change
		after time.Duration
		want  fleet.Kind
	}{
		"never written":        {nil, 0, fleet.KindNotFound},
		"just written":         {[]fleet.Change{create}, 0, fleet.KindTransient},
		"written 59 s ago":     {[]fleet.Change{create}, 59 * time.Second, fleet.KindTransient},
		"written a minute ago": {[]fleet.Change{create}, time.Minute, fleet.KindNotFound},
		"another written":      {[]fleet.Change{fleet.CreateDisk{ID: "/disks/b"}}, 0, fleet.KindNotFound},
		"deleted since":        {[]fleet.Change{create, fleet.DeleteDisk{ID: "/disks/a"}}, 0, fleet.KindNotFound},
		"written again since":  {[]fleet.Change{create, fleet.DeleteDisk{ID: "/disks/a"}, create}, 0, fleet.KindTransient},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := azure.Settled(missing{})
				for _, change := range tc.begin {
					if _, err := c.Begin(t.Context(), change); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(tc.after)
				if _, err := c.Disk(t.Context(), "/Disks/A"); !fleet.Is(err, tc.want) || !strings.Contains(err.Error(), "no") {
					t.Errorf("a missing disk: %v, want %s with Azure's reason", err, tc.want)
				}
				if _, err := c.Begin(t.Context(), fleet.AttachDisk{Instance: "/i", Disk: "/disks/a"}); !fleet.Is(err, tc.want) {
					t.Errorf("attach of a missing disk: %v, want %s", err, tc.want)
				}
			})
		})
	}
}

// A deletion of instances ends the doubt about them, and none about their scale set.
func TestSettledInstances(t *testing.T) {
	pool := fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/p")
	for _, instance := range []fleet.ResourceID{pool.Child("virtualMachines", "3"), pool.In("virtualMachines", "p_3")} {
		c := azure.Settled(missing{})
		for _, change := range []fleet.Change{fleet.SetCapacity{Pool: pool}, fleet.ProtectInstance{Instance: instance},
			fleet.DeleteInstances{Pool: pool, Instances: []string{strings.ToUpper(instance.Name())}}} {
			if _, err := c.Begin(t.Context(), change); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Instance(t.Context(), instance); !fleet.Is(err, fleet.KindNotFound) {
			t.Errorf("%s, which was deleted: %v", instance, err)
		}
		if _, err := c.Pool(t.Context(), pool); !fleet.Is(err, fleet.KindTransient) {
			t.Errorf("its scale set, which was written: %v", err)
		}
	}
}
