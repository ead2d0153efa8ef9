package azsim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// crowd plays a scale set that is made, loses and gains instances, and disks,
// snapshots and an image version that several goroutines make at one instant, and
// tells all that can be seen of it.
func crowd(t *testing.T, s *Server) string {
	t.Helper()
	var out strings.Builder
	var requests []string
	synctest.Test(t, func(t *testing.T) {
		defer s.Close()
		var mu sync.Mutex
		s.OnRequest = func(r Request) {
			mu.Lock()
			defer mu.Unlock()
			requests = append(requests, fmt.Sprintln(r.Time.UnixNano(), r.Method, r.Path, r.Status))
		}
		l, b := newLab(t, s), newBench(t, s, "")
		show := func(what string) {
			fmt.Fprintln(&out, what, time.Now().UnixNano())
			s.View(func(v *View) {
				for _, typ := range []string{setType, instanceType, "Microsoft.Compute/disks", "Microsoft.Compute/snapshots", "Microsoft.Compute/galleries/images/versions"} {
					v.Each(typ, func(id string, body any) {
						data, err := json.Marshal(body)
						if err != nil {
							t.Error(err)
						}
						st, _ := v.Instance(id)
						fmt.Fprintf(&out, "%s %s %+v %v\n", id, data, st, v.Running(id))
					})
				}
			})
		}
		body := pool(20)
		body.Zones = []*string{ptr("1"), ptr("2"), ptr("3")}
		body.Properties.VirtualMachineProfile.ExtensionProfile = &armcompute.VirtualMachineScaleSetExtensionProfile{Extensions: []*armcompute.VirtualMachineScaleSetExtension{
			{Name: ptr("cse"), Properties: &armcompute.VirtualMachineScaleSetExtensionProperties{Publisher: ptr("p"), Type: ptr("t"), TypeHandlerVersion: ptr("1.0")}}}}
		l.create("p", body)
		show("made")
		if err := l.scale("p", 12); err != nil {
			t.Error(err)
		}
		show("scaled in")
		if err := l.scale("p", 16); err != nil {
			t.Error(err)
		}
		show("scaled out")
		if _, err := l.vms.BeginPowerOff(context.Background(), labGroup, "p", "3", nil); err != nil {
			t.Error(err)
		}
		b.image()
		d := b.disk("d", 4)
		// Requests of one instant, in an order that the scheduler decides.
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() { b.snapshot(fmt.Sprint("s", i), *d.ID) })
			wg.Go(func() { b.disk(fmt.Sprint("e", i), 4) })
		}
		wg.Wait()
		show("copied")
		p, err := b.f.NewGalleryImageVersionsClient().BeginCreateOrUpdate(b.ctx, b.group, "g", "i", "1.0.0", armcompute.GalleryImageVersion{
			Location: ptr(DefaultLocation), Properties: &armcompute.GalleryImageVersionProperties{StorageProfile: &armcompute.GalleryImageVersionStorageProfile{
				OSDiskImage: &armcompute.GalleryOSDiskImage{Source: &armcompute.GalleryDiskImageSource{ID: d.ID}}}}}, nil)
		await(b, p, err)
		show("imaged")
	})
	slices.Sort(requests) // those of one instant come in any order
	return out.String() + strings.Join(requests, "\n")
}

// The same seed and requests give the same ids, order, durations and states,
// though many instances end their boot at one instant.
func TestDeterminismOfACrowd(t *testing.T) {
	together := Profile{}
	for name, span := range DefaultProfile() {
		odd := span.Min + 7 // not at the instant of a poll, which may come before or after
		together[name] = Span{odd, odd}
	}
	for name, profile := range map[string]Profile{"each its own time": nil, "all at one instant": together} {
		t.Run(name, func(t *testing.T) {
			first := crowd(t, &Server{Seed: 7, Profile: profile})
			for range 20 {
				again := crowd(t, &Server{Seed: 7, Profile: profile})
				if again == first {
					continue
				}
				a, b := strings.Split(first, "\n"), strings.Split(again, "\n")
				for i := range min(len(a), len(b)) {
					if a[i] != b[i] {
						t.Fatalf("line %d:\n%s\n%s", i, a[i], b[i])
					}
				}
				t.Fatalf("%d lines and %d", len(a), len(b))
			}
			if other := crowd(t, &Server{Seed: 8, Profile: profile}); other == first {
				t.Error("two seeds give the same")
			}
		})
	}
}

func TestNaturalOrder(t *testing.T) {
	want := []string{"", "p/", "p/9", "p/9/a", "p/09x", "p/10", "p/10/b", "p/a", "p/a2", "p/a10"}
	for i, a := range want {
		for j, b := range want {
			if got := natural(a, b); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("natural(%q, %q) = %d", a, b, got)
			}
		}
	}
}
