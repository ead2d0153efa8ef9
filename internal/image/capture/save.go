package capture

import (
	"cmp"
	"context"
	"crypto/ecdh"
	"crypto/hpke"
	"errors"
	"fmt"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture/report"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

func readKey(private []byte) (hpke.PrivateKey, error) {
	key, err := hpke.DHKEM(ecdh.X25519()).NewPrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("read the journal's key: %w", err)
	}
	return key, nil
}

// save keeps what the pod found on the disk that Azure never gives back. It reads the
// pod's report again, so that it can be repeated.
func (c *capture) save(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	if err := p.Save(ctx); err != nil {
		return done, err
	}
	s := c.get()
	pod, podErr := c.Cluster.Job(ctx, s.Pod)
	key, err := readKey(s.Key)
	if err = cmp.Or(podErr, err); err != nil {
		return done, err
	}
	_, output, _ := report.Read(pod.Output)
	if output == nil || output.Outcome != wire.Generalized || output.Capture != c.name {
		return done, c.onBench(ctx, workflow.Replan("the pod's report is gone"))
	}
	custom := ""
	for _, item := range output.Saved {
		data, err := hpke.Open(key, hpke.HKDFSHA256(), hpke.AES256GCM(), []byte("ortet.io/saved/"+string(item.Kind)+"/"+item.Name), item.Sealed)
		if err == nil && plan.SHA256(string(data)) != item.SHA256 {
			err = errors.New("its hash is another")
		}
		if err != nil {
			return done, fmt.Errorf("open %s %s: %w", item.Kind, item.Name, err)
		}
		if item.Kind == wire.CustomData {
			custom = item.SHA256
		}
		if item.SHA256 != plan.NoopSHA256 {
			if err := c.keep(ctx, string(item.Kind), item.Name, fleet.NewSecret(string(data)), output.Saved); err != nil {
				return done, err
			}
			p.Progress(-1, "kept %s %s", item.Kind, item.Name)
		}
	}
	manifest, err := c.keepManifest(ctx, p, report.Manifest(pod.Output), output.Saved)
	if err != nil {
		return done, err
	}
	var differ []string
	disk := c.disk()
	c.set(func(s *state) {
		differ = s.Learn(&s.Inherited, disk, *output, custom, c.Now())
		s.Keep(*output)
		s.Manifest = manifest
		s.CustomData, s.NoCustomData = custom, custom == "" && !report.CustomDataUnread(*output)
		if c.req.Bakes() || s.NoCustomData && s.LastCustomData == plan.NoopSHA256 {
			s.CustomData = plan.NoopSHA256 // the no-op that stays in the model is not sealed
		}
	})
	for _, name := range differ {
		c.Note("%s on the disk of %s is not what an earlier donor's disk showed, which a rollback to the original restores", name, c.req.Node)
	}
	return done, nil
}

// keepManifest keeps what is in the image, and returns its SHA-256; "" where it is not known. That
// it cannot be kept fails no capture: an error is tried again for some minutes.
func (c *capture) keepManifest(ctx context.Context, p *workflow.Pass, packed []byte, saved []wire.SealedItem) (string, error) {
	if packed == nil {
		c.Note("the pod on the workbench gave no list of what is in the image that can be read, so ortet versions diff and sbom have none")
		return "", nil
	}
	err := c.keep(ctx, cluster.Manifest, "", fleet.NewSecret(string(packed)), saved)
	switch {
	case err == nil:
		return plan.SHA256(string(packed)), nil
	case ctx.Err() != nil, fleet.Is(err, fleet.KindTransient, fleet.KindThrottled, fleet.KindTimedOut) && p.Since() < 5*time.Minute:
		return "", err
	}
	c.Note("the list of what is in the image could not be kept, so ortet versions diff and sbom do not have it: %v", err)
	return "", nil
}

// dropManifest drops the manifest of a version that was pruned. One that stays goes when the Secret is full.
func (c *capture) dropManifest(ctx context.Context, sha string) {
	if err := c.Cluster.DropSecret(ctx, c.get().Pool, cluster.Manifest, sha); err != nil {
		c.Note("the list of what was in a deleted version is still kept: %v", err)
	}
}

// keep keeps an item. Of what is kept already, it must not drop to make room what else is
// saved now, or what an image version, the model or the original needs.
func (c *capture) keep(ctx context.Context, kind, name string, data fleet.Secret, saved []wire.SealedItem) error {
	s := c.get()
	item := cluster.SecretItem{Kind: kind, Name: name, SHA256: plan.SHA256(data.Reveal()), Data: data, Pool: s.Pool, Donor: c.req.Node,
		At: c.Now()}
	return c.Cluster.PutSecret(ctx, item, func(ctx context.Context) ([]string, error) {
		needed := append(fleet.Each(saved, func(i wire.SealedItem) string { return i.SHA256 }), s.CustomData, s.LastCustomData)
		if s.Original != nil {
			needed = append(needed, s.Original.CustomData)
			for _, e := range s.Original.Extensions {
				needed = append(needed, e.PublicSHA256, e.ProtectedSHA256)
			}
		}
		versions, err := azure.VersionsOf(ctx, c.Cloud, c.definitions...)
		for _, v := range versions {
			if needed = append(needed, v.Tags[fleet.TagCustomData]); kind == cluster.Manifest { // others need the room more
				needed = append(needed, v.Tags[fleet.TagManifest])
			}
		}
		return needed, fleet.IgnoreNotFound(err)
	})
}
