package engine

import (
	"context"
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/wire"
)

const noop = prototype.NoopCustomData

func sha(data string) string {
	sum := sha256.Sum256([]byte(data))
	return hex.EncodeToString(sum[:])
}

func kem() hpke.KEM { return hpke.DHKEM(ecdh.X25519()) }

// newKey makes the private key that opens what the workbench's pod seals.
func newKey() ([]byte, error) {
	key, err := kem().GenerateKey()
	if err != nil {
		return nil, fmt.Errorf("make a key for what is saved: %w", err)
	}
	return key.Bytes()
}

func publicKey(private []byte) ([]byte, error) {
	key, err := kem().NewPrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("read the journal's key: %w", err)
	}
	return key.PublicKey().Bytes(), nil
}

// open opens a sealed item, and checks that it is what its hash says.
func open(private []byte, item wire.SealedItem) (string, error) {
	key, err := kem().NewPrivateKey(private)
	if err != nil {
		return "", fmt.Errorf("read the journal's key: %w", err)
	}
	info := []byte("ortet.io/saved/" + string(item.Kind) + "/" + item.Name)
	data, err := hpke.Open(key, hpke.HKDFSHA256(), hpke.AES256GCM(), info, item.Sealed)
	if err != nil {
		return "", fmt.Errorf("open %s %s: %w", item.Kind, item.Name, err)
	}
	if sha(string(data)) != item.SHA256 {
		return "", fmt.Errorf("open %s %s: it is not what its hash says", item.Kind, item.Name)
	}
	return string(data), nil
}

// save keeps what the pod found on the disk that cannot be read back from
// Azure. It reads the pod's report again, so that it can be repeated.
func save(ctx context.Context, t *task) error {
	r := t.r
	f := r.get()
	if f.Saved {
		return needless("it is saved")
	}
	s, err := t.job(ctx, f.Names.Job)
	if err != nil {
		return err
	}
	_, report := readOutput(s.Output)
	if report == nil || report.Outcome != wire.Generalized || report.Capture != r.captureName() {
		return errors.New("the pod's report is gone")
	}
	r.mu.Lock()
	o := optionsOf(r.record)
	r.mu.Unlock()
	custom := ""
	unsaved := slices.Clone(report.Unsaved)
	needed := func(ctx context.Context) ([]string, error) { return r.neededItems(ctx, report.Saved) }
	for _, item := range report.Saved {
		data, err := open(f.PrivateKey, item)
		if err != nil {
			return err
		}
		if item.Kind == wire.CustomData {
			custom = item.SHA256
			if data == noop { // a clone's: what it was before is kept already
				continue
			}
		}
		kept := cluster.Kept{
			Kind: string(item.Kind), Name: item.Name, SHA256: item.SHA256, Data: fleet.NewSecret(data),
			Pool: f.Pool, Donor: r.donorName(), At: r.e.now(),
		}
		if err := do(ctx, t, func(ctx context.Context) error { return r.e.cluster.Keep(ctx, kept, needed) }); err != nil {
			return err
		}
		t.progress(-1, "kept %s %s", item.Kind, item.Name)
	}
	restore := custom
	if custom == "" && !o.Bake && !customDataUnread(*report) {
		// The no-op of a baked capture, which stays in the model, is not sealed.
		has, theirs, err := t.modelHas(ctx)
		if err != nil {
			return err
		}
		if has == sha(noop) && !theirs {
			custom = has
		}
	}
	if err := r.canJoin(*report, custom, o.Bake); err != nil {
		return err
	}
	if o.Bake {
		// What goes with the version, so that a rollback to it restores that.
		custom = sha(noop)
	}
	return r.amend(func(_ *journal.Record, f *facts) {
		f.Saved, f.CustomData, f.Restore, f.Unsaved = true, custom, restore, unsaved
		f.keepScan(*report)
		if f.Learns && restore != "" {
			original := *f.Original
			original.CustomData = restore
			f.Original = &original
		}
	})
}

// neededItems gives the hashes of the items that are saved now, of which some may have
// been there for long, and of customData that a version, the record or a rollback to the
// original refers to.
func (r *run) neededItems(ctx context.Context, saved []wire.SealedItem) ([]string, error) {
	f := r.get()
	versions, err := r.e.cloud.Versions(ctx, f.Names.Definition)
	if err := ignoreMissing(err); err != nil {
		return nil, err
	}
	needed := []string{f.CustomData, f.Restore, f.Went}
	if f.Original != nil {
		needed = append(needed, f.Original.CustomData)
	}
	for _, v := range versions {
		needed = append(needed, v.Tags[fleet.TagCustomData])
	}
	for _, item := range saved {
		needed = append(needed, item.SHA256)
	}
	return needed, nil
}

// customDataUnread reports whether there may be customData that could not be read.
func customDataUnread(report wire.GeneralizeReport) bool {
	return slices.ContainsFunc(report.Unsaved, func(s string) bool { return strings.HasPrefix(s, string(wire.CustomData)) })
}

// canJoin refuses to strand the pool: where nothing on the disk and no
// customData lets a clone join, the extensions that would go are what does.
func (r *run) canJoin(report wire.GeneralizeReport, customData string, bake bool) error {
	if len(report.Joins) > 0 || !bake && customData != "" && customData != sha(noop) {
		return nil
	}
	if !bake && customData == sha(noop) {
		// The donor joined by what was on its disk, and generalising removed that.
		return &fleet.Error{Op: "generalize", Resource: "the copy of the disk", Kind: fleet.KindInvalid,
			Err:    errors.New("nothing that is left on it lets a clone join, and the model's customData does nothing since a capture with --bootstrap baked"),
			Remedy: "capture with --bootstrap baked"}
	}
	if !bake && len(report.Unsaved) > 0 {
		return nil // there may be customData that could not be read
	}
	if !bake && len(r.get().Doomed) == 0 {
		return nil // the extensions stay, and do what they did
	}
	return &fleet.Error{Op: "generalize", Resource: "the copy of the disk", Kind: fleet.KindInvalid,
		Err:    errors.New("nothing on it lets a clone join, and it came with no customData: its extensions may be all that does"),
		Remedy: "leave the extensions alone (--extensions none), or let the disk hold a bootstrap kubeconfig"}
}
