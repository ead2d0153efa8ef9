package capture

import (
	"cmp"
	"context"
	"crypto/ecdh"
	"crypto/hpke"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
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
	_, report := readOutput(pod.Output)
	if report == nil || report.Outcome != wire.Generalized || report.Capture != c.name {
		return done, c.onBench(ctx, workflow.Replan("the pod's report is gone"))
	}
	custom := ""
	for _, item := range report.Saved {
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
			if err := c.keep(ctx, string(item.Kind), item.Name, fleet.NewSecret(string(data)), report.Saved); err != nil {
				return done, err
			}
			p.Progress(-1, "kept %s %s", item.Kind, item.Name)
		}
	}
	var differ []string
	c.set(func(s *state) {
		differ = s.learn(*report, custom, c.req.Node, c.Now())
		s.keepScan(*report)
		s.CustomData, s.NoCustomData = custom, custom == "" && !customDataUnread(*report)
		if c.req.Bakes() || custom == "" && !customDataUnread(*report) && s.LastCustomData == plan.NoopSHA256 {
			s.CustomData = plan.NoopSHA256 // the no-op that stays in the model is not sealed
		}
	})
	for _, name := range differ {
		c.Note("%s on the disk of %s is not what an earlier donor's disk showed, which a rollback to the original restores", name, c.req.Node)
	}
	return done, nil
}

// learn completes the original from the donor's disk: customData, and extensions by their
// handlers' names. Unsaved names what the pod could not save, and the protected settings of
// extensions that are to be deleted and of which the disk has nothing. What an earlier donor's
// disk showed stays: a node that lies must not replace it, and what differs is returned.
func (s *state) learn(report wire.GeneralizeReport, customData, donor string, now time.Time) (differ []string) {
	s.Unsaved = slices.Clone(report.Unsaved)
	if s.Original == nil {
		return nil
	}
	o := *s.Original
	learn := func(known, name, sha string, kind wire.SealedKind) string {
		counts := o.Learn(known, plan.Learned{Kind: string(kind), Name: name, SHA256: sha, Donor: donor, At: now})
		if counts != sha {
			differ = append(differ, cmp.Or(name, string(kind)))
		}
		return counts
	}
	if o.Extensions = slices.Clone(o.Extensions); customData != "" {
		o.CustomData = learn(o.CustomData, "", customData, wire.CustomData)
	}
	for i := range o.Extensions {
		e := &o.Extensions[i]
		is := func(name string) bool {
			return strings.EqualFold(name, e.Handler()) || strings.EqualFold(name, e.Handler()+"/"+e.Name)
		}
		sha := ""
		if slices.ContainsFunc(report.NoProtected, is) {
			sha = plan.NoSettings
		}
		for _, item := range report.Saved {
			if item.Kind == wire.ProtectedSettings && is(item.Name) {
				sha = item.SHA256
			}
		}
		if e.KeyVault == nil && sha != "" {
			e.ProtectedSHA256 = learn(e.ProtectedSHA256, e.Name, sha, wire.ProtectedSettings)
		}
		named := slices.ContainsFunc(report.Unsaved, func(text string) bool { return strings.Contains(text, e.Handler()) })
		if e.HasProtectedSettings && e.ProtectedSHA256 == "" && slices.Contains(s.ToDelete, e.Name) && !named {
			s.Unsaved = append(s.Unsaved, "protected settings of extension "+e.Name+": the donor's disk has none of them")
		}
	}
	if !s.LearnsOriginal {
		return nil
	}
	s.Original = &o
	return differ
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

// customDataUnread reports whether there may be customData that could not be read.
func customDataUnread(report wire.GeneralizeReport) bool {
	return slices.ContainsFunc(report.Unsaved, func(s string) bool { return strings.HasPrefix(s, string(wire.CustomData)) })
}

// keepScan keeps what the scan of the copy accepted, removed and passed over.
func (s *state) keepScan(report wire.GeneralizeReport) {
	paths := func(is func(wire.SecretFinding) bool) (all []string) {
		for _, x := range report.Findings {
			if is(x) {
				all = append(all, x.Path)
			}
		}
		slices.Sort(all)
		return slices.Compact(all) // a file may hold several
	}
	s.Credentials = paths(func(x wire.SecretFinding) bool { return x.Accepted && x.Class == wire.PoolCredential })
	s.AcceptedSecrets = paths(func(x wire.SecretFinding) bool { return x.Accepted && x.Class == wire.OtherSecret })
	s.RemovedSecrets = paths(func(x wire.SecretFinding) bool { return x.Removed })
	s.Secrets, s.ScanNotes = "", nil
	if pool, other, removed := len(s.Credentials), len(s.AcceptedSecrets), report.SecretsRemoved; pool+other+removed > 0 {
		s.Secrets = fmt.Sprintf("pool %d, other %d, removed %d", pool, other, removed)
	}
	if len(report.Emptied) > 0 { // of a copy that was taken online
		s.ScanNotes = append(s.ScanNotes, "these files are empty, and were written in the minute before the disk was copied; if they should not be, capture again: "+
			upTo(maxNamed, report.Emptied, len(report.Emptied)))
	}
	var stores []string
	var bytes int64
	for _, x := range report.Stores {
		if !x.ByForm {
			stores, bytes = append(stores, x.Path), bytes+x.Bytes
		}
	}
	if bytes > 0 {
		s.ScanNotes = append(s.ScanNotes, fmt.Sprintf("%.1f GiB of image layers were searched for the node's own secrets only (%s); --scan-images searches them for all kinds", float64(bytes)/(1<<30), strings.Join(stores, ", ")))
	}
	if report.More > 0 {
		s.ScanNotes = append(s.ScanNotes, fmt.Sprintf("%d more secrets were found on the disk than are listed", report.More))
	}
}
