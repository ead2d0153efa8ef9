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
