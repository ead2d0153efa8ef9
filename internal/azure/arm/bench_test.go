package arm_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/fleet"
)

// The requests that a capture is made of, by the adapter and the SDK to azsim's
// handler in this process: what a simulation spends its time on.
func BenchmarkRequests(b *testing.B) {
	for _, n := range []int64{5, 200} {
		b.Run(fmt.Sprintf("instances=%d", n), func(b *testing.B) {
			s := &azsim.Server{PageSize: 50, KeepAnswers: true}
			b.Cleanup(s.Close)
			s.Instant(true)
			c, err := arm.New(arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: s.Credential(""), Transport: s.Transport(), Version: "test"})
			if err != nil {
				b.Fatal(err)
			}
			ctx := context.Background()
			begin := func(ch fleet.Change) fleet.Token {
				tok, err := c.Begin(ctx, ch)
				if err != nil {
					b.Fatal(err)
				}
				return tok
			}
			finish := func(ch fleet.Change) {
				for tok := begin(ch); tok != ""; {
					runtime.Gosched() // its goroutine comes first
					if p, err := c.Poll(ctx, tok); err != nil {
						b.Fatal(err)
					} else if p.Done {
						break
					}
				}
			}
			pool := poolOf(b, s, n)
			list, err := c.Instances(ctx, pool)
			if err != nil || len(list) != int(n) {
				b.Fatal(len(list), err)
			}
			gallery := pool.In("galleries", "g")
			def, version := gallery.Child("images", "i"), gallery.Child("images", "i").Child("versions", "1.0.0")
			snapshot := fleet.CreateSnapshot{ID: pool.In("snapshots", "kept"), Location: "westeurope", Source: list[0].OSDisk, Tags: map[string]string{fleet.TagCapture: "c", "made-by": "ortet"}}
			finish(snapshot)
			finish(fleet.CreateGallery{ID: gallery, Location: "westeurope"})
			finish(fleet.CreateDefinition{Definition: fleet.Definition{ID: def, Location: "westeurope", Publisher: "p", Offer: "o", SKU: "s", OSState: "Generalized", Linux: true, Generation: "V2", Architecture: "x64"}})
			finish(fleet.CreateVersion{ID: version, Location: "westeurope", Source: snapshot.ID, Replicas: 1, StorageType: fleet.ZRS, ReplicationMode: fleet.ReplicationFull, Tags: snapshot.Tags})
			running, err := c.Begin(azsim.WithFault(ctx, azsim.Fault{Effect: azsim.EffectNeverEnds}),
				fleet.CreateSnapshot{ID: pool.In("snapshots", "slow"), Location: "westeurope", Source: list[0].OSDisk})
			if err != nil {
				b.Fatal(err)
			}

			for _, what := range []struct {
				name string
				do   func(i int) error
			}{
				{"pool", func(int) error { _, err := c.Pool(ctx, pool); return err }},
				{"instance", func(int) error { _, err := c.Instance(ctx, list[0].ID); return err }},
				{"list", func(int) error { _, err := c.Instances(ctx, pool); return err }},
				{"versions", func(int) error { _, err := c.Versions(ctx, def); return err }},
				{"snapshot", func(int) error { _, err := c.Snapshot(ctx, snapshot.ID); return err }},
				{"poll", func(int) error { _, err := c.Poll(ctx, running); return err }},
				{"change", func(i int) error {
					made := snapshot
					made.ID = pool.In("snapshots", fmt.Sprint("s", i))
					finish(made)
					finish(fleet.DeleteSnapshot{ID: made.ID})
					return nil
				}},
				{"model", func(i int) error {
					data := fleet.NewSecret(fmt.Sprint("#cloud-config ", i))
					finish(fleet.PatchModel{Pool: pool, Image: fleet.ImageReference{ID: version}, CustomData: &data})
					return nil
				}},
			} {
				b.Run(what.name, func(b *testing.B) {
					b.ReportAllocs()
					for i := 0; b.Loop(); i++ {
						if err := what.do(i); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		})
	}
}

// poolOf makes a scale set of n instances, as poolBody makes it.
func poolOf(b *testing.B, s *azsim.Server, n int64) fleet.ResourceID {
	b.Helper()
	sets, err := armcompute.NewVirtualMachineScaleSetsClient(azsim.DefaultSubscription, s.Credential(""), s.ClientOptions())
	if err != nil {
		b.Fatal(err)
	}
	p, err := sets.BeginCreateOrUpdate(context.Background(), azsim.DefaultResourceGroup, "pool1", poolBody(n), nil)
	if err != nil {
		b.Fatal(err)
	}
	for !p.Done() { // nothing takes any time
		if _, err := p.Poll(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	return simPool
}

// A look at all boots of a large pool, with azsim's part in it; and of one page
// of 50 instances without.
func BenchmarkBoots(b *testing.B) {
	s := &azsim.Server{PageSize: 50}
	b.Cleanup(s.Close)
	s.Instant(true)
	c, err := arm.New(arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: s.Credential(""), Transport: s.Transport(), Version: "test"})
	if err != nil {
		b.Fatal(err)
	}
	p := fleet.Pool{ID: poolOf(b, s, 1000), Orchestration: fleet.Uniform}
	b.Run("instances=1000", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			list, err := c.Boots(context.Background(), p)
			if err != nil || len(list) != 1000 {
				b.Fatal(len(list), err)
			}
		}
	})
	b.Run("page", func(b *testing.B) {
		one := strings.TrimSuffix(strings.TrimPrefix(view, `{"value":[null,`), `]}`)
		page := &parrot{status: 200, body: `{"value":[` + strings.Repeat(one+",", 49) + one + `]}`, most: math.MaxInt}
		c, err := arm.New(arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: s.Credential(""), Transport: page, Version: "test"})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			page.sent = page.sent[:0]
			if list, err := c.Boots(context.Background(), p); err != nil || len(list) != 50 {
				b.Fatal(len(list), err)
			}
		}
	})
}
