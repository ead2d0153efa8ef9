package capture

import (
	"cmp"
	"context"
	"crypto/ecdh"
	"crypto/hpke"
	"errors"
	"fmt"

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
	var differ []string
	disk := c.disk()
	c.set(func(s *state) {
		differ = s.Learn(&s.Inherited, disk, *output, custom, c.Now())
		s.Keep(*output)
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
		tags := fleet.Each(versions, func(v fleet.ImageVersion) string { return v.Tags[fleet.TagCustomData] })
		return append(needed, tags...), fleet.IgnoreNotFound(err)
	})
}
