package generalize

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/ortet/ortet/internal/node/tree"
)

// Where the layout of containerd's databases is from: the package comment of
// core/metadata/buckets.go and core/snapshots/storage/bolt.go in
// github.com/containerd/containerd, schema v1, the same since containerd 1.0.
const (
	kindCommitted = 3 // snapshots.KindCommitted
	// maxDatabase bounds a database that is opened; real ones have some MiB.
	maxDatabase = 4 << 30
	boltWait    = 5 * time.Second // for another process's lock
)

var rootSetting = regexp.MustCompile(`(?m)^\s*root\s*=\s*["'](/[^"']+)["']`)

// containerdRoots lists the folders that containerd keeps its state in: the
// usual ones, Docker's, k3s' and RKE2's own, and what its configuration says.
func containerdRoots(t *tree.Tree) ([]string, error) {
	roots := []string{"var/lib/containerd", "var/lib/docker/containerd/daemon", "var/lib/rancher/k3s/agent/containerd", "var/lib/rancher/rke2/agent/containerd"}
	data, err := readOptional(t, "/etc/containerd/config.toml", maxConfig)
	if err != nil {
		return nil, err
	}
	if m := rootSetting.FindSubmatch(data); m != nil {
		roots = append(roots, strings.TrimPrefix(path.Clean(string(m[1])), "/"))
	}
	var found []string
	for _, r := range roots {
		at, err := t.Resolve(r, true)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if info, err := t.Stat(at); err == nil && info.IsDir() && at != "." {
			found = append(found, at)
		}
	}
	return found, nil
}

// imageStores lists the folders that hold layers and image contents. Their
// content came from registries and is the same on every node.
func imageStores(t *tree.Tree) ([]string, error) {
	roots, err := containerdRoots(t)
	if err != nil {
		return nil, err
	}
	patterns := []string{
		"/var/lib/docker/overlay2", "/var/lib/docker/image",
		"/var/lib/containers/storage/overlay", "/var/lib/containers/storage/overlay-images",
	}
	for _, r := range roots {
		patterns = append(patterns, r+"/io.containerd.content.v1.content/blobs")
		// Without its database nothing was told apart: then all of it is scanned.
		databases, err := t.Glob(r + "/io.containerd.snapshotter.v1.*/metadata.db")
		if err != nil {
			return nil, err
		}
		for _, db := range databases {
			patterns = append(patterns, path.Dir(db)+"/snapshots")
		}
	}
	var stores []string
	for _, p := range patterns {
		at, err := t.Glob(p)
		if err != nil {
			return nil, err
		}
		stores = append(stores, at...)
	}
	return stores, nil
}

// cleanContainerd edits the databases of every containerd on the disk, which
// does not run: containers, sandboxes and leases go, and with them every
// snapshot that is not committed. Images, contents and committed snapshots,
// which are unpacked layers, stay.
func cleanContainerd(ctx context.Context, c *cleaner, _ string) (tree.Count, error) {
	var total tree.Count
	roots, err := containerdRoots(c.t)
	if err != nil {
		return total, err
	}
	for _, root := range roots {
		n, err := c.cleanContainerdAt(ctx, root)
		if err != nil {
			return total, fmt.Errorf("containerd at /%s: %w", root, err)
		}
		total.Add(n)
	}
	return total, nil
}

func (c *cleaner) cleanContainerdAt(ctx context.Context, root string) (tree.Count, error) {
	var total tree.Count
	// Snapshotters first: if this is cut short, the metadata still names what
	// is gone, and the next run removes it.
	kept := map[string]map[string]bool{} // snapshotter → names of its snapshots that stay
	stores, err := c.t.Glob(root + "/io.containerd.snapshotter.v1.*")
	if err != nil {
		return total, err
	}
	for _, store := range stores {
		if err := ctx.Err(); err != nil {
			return total, err
		}
		name := strings.TrimPrefix(path.Base(store), "io.containerd.snapshotter.v1.")
		stay, n, err := c.dropSnapshots(store)
		if err != nil {
			return total, fmt.Errorf("snapshotter %s: %w", name, err)
		}
		if stay != nil {
			kept[name] = stay
		}
		total.Add(n)
	}
	if err := c.dropMetadata(root+"/io.containerd.metadata.v1.bolt/meta.db", kept); err != nil {
		return total, err
	}
	err = c.removeBelow(&total, root,
		"/io.containerd.runtime.v1.linux/*", "/io.containerd.runtime.v2.task/*",
		"/io.containerd.grpc.v1.cri/containers/*", "/io.containerd.grpc.v1.cri/sandboxes/*",
		"/io.containerd.sandbox.controller.v1.shim/*", "/io.containerd.content.v1.content/ingest/*", "/tmpmounts/*")
	return total, err
}

// dropSnapshots removes a snapshotter's snapshots that are not committed, from
// its database and from its folder, and returns the names of those that stay;
// nil where it did not look. Snapshotters that keep no folder (devmapper, zfs, btrfs) are left to containerd, which collects
// what nothing refers to when it starts.
func (c *cleaner) dropSnapshots(store string) (map[string]bool, tree.Count, error) {
	var total tree.Count
	if ok, err := c.t.Exists(store + "/snapshots"); err != nil || !ok {
		return nil, total, err
	}
	stay, gone := map[string]bool{}, map[string]bool{}
	folders := map[string]bool{} // of those that stay
	found, err := c.updateBolt(store+"/metadata.db", func(tx *bolt.Tx) error {
		v1 := tx.Bucket([]byte("v1"))
		if v1 == nil || v1.Bucket([]byte("snapshots")) == nil {
			return nil
		}
		snapshots, parents := v1.Bucket([]byte("snapshots")), v1.Bucket([]byte("parents"))
		for _, name := range subBuckets(snapshots) {
			b := snapshots.Bucket([]byte(name))
			id, ok := readUvarint(b.Get([]byte("id")))
			if !ok {
				return fmt.Errorf("snapshot %q has no id", printable(name, 80))
			}
			if kind := b.Get([]byte("kind")); len(kind) == 1 && kind[0] == kindCommitted {
				stay[name] = true
				folders[strconv.FormatUint(id, 10)] = true
			} else {
				gone[name] = true
			}
		}
		for name := range gone {
			if err := snapshots.DeleteBucket([]byte(name)); err != nil {
				return err
			}
		}
		return dropParents(parents, gone)
	})
	if err != nil || !found {
		return nil, total, err
	}
	entries, err := c.t.ReadDir(store + "/snapshots")
	if err != nil {
		return nil, total, err
	}
	for _, e := range entries {
		if folders[e.Name()] {
			continue
		}
		n, err := c.t.Remove(store + "/snapshots/" + e.Name())
		if err != nil {
			return nil, total, err
		}
		total.Add(n)
	}
	return stay, total, nil
}

// dropParents removes the links parent → child whose child is gone; a link's
// value is its child's name.
func dropParents(parents *bolt.Bucket, gone map[string]bool) error {
	if parents == nil {
		return nil
	}
	var stale [][]byte
	err := parents.ForEach(func(k, v []byte) error {
		if gone[string(v)] {
			stale = append(stale, append([]byte(nil), k...))
		}
		return nil
	})
	for _, k := range stale {
		err = errors.Join(err, parents.Delete(k))
	}
	return err
}

// dropMetadata removes containers, sandboxes, leases, unfinished downloads, and
// references to snapshots that are gone, in every namespace of meta.db.
func (c *cleaner) dropMetadata(db string, kept map[string]map[string]bool) error {
	_, err := c.updateBolt(db, func(tx *bolt.Tx) error {
		// Some versions keep sandboxes beside v1, by namespace.
		err := tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			if string(name) == "v1" {
				return nil
			}
			return emptyBucket(b, "sandboxes")
		})
		v1 := tx.Bucket([]byte("v1"))
		if err != nil || v1 == nil {
			return err
		}
		for _, ns := range subBuckets(v1) {
			b := v1.Bucket([]byte(ns))
			for _, object := range []string{"containers", "sandboxes", "leases"} {
				if err := emptyBucket(b, object); err != nil {
					return err
				}
			}
			if content := b.Bucket([]byte("content")); content != nil {
				if err := emptyBucket(content, "ingests"); err != nil {
					return err
				}
			}
			if err := dropReferences(b.Bucket([]byte("snapshots")), kept); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// dropReferences removes a namespace's entries of snapshots that their
// snapshotter does not have, and their parents' notes of them.
func dropReferences(snapshots *bolt.Bucket, kept map[string]map[string]bool) error {
	if snapshots == nil {
		return nil
	}
	for _, snapshotter := range subBuckets(snapshots) {
		b := snapshots.Bucket([]byte(snapshotter))
		for _, key := range subBuckets(b) {
			entry := b.Bucket([]byte(key))
			if stay := kept[snapshotter]; stay == nil || stay[string(entry.Get([]byte("name")))] {
				continue
			}
			if parent := b.Bucket(entry.Get([]byte("parent"))); parent != nil {
				if children := parent.Bucket([]byte("children")); children != nil {
					if err := children.Delete([]byte(key)); err != nil {
						return err
					}
				}
			}
			if err := b.DeleteBucket([]byte(key)); err != nil {
				return err
			}
		}
	}
	return nil
}

func emptyBucket(b *bolt.Bucket, name string) error {
	if b.Bucket([]byte(name)) == nil {
		return nil
	}
	if err := b.DeleteBucket([]byte(name)); err != nil {
		return err
	}
	_, err := b.CreateBucket([]byte(name))
	return err
}

func subBuckets(b *bolt.Bucket) []string {
	var names []string
	// ForEachBucket's own error is only its callback's.
	_ = b.ForEachBucket(func(k []byte) error {
		names = append(names, string(k))
		return nil
	})
	return names
}

func readUvarint(b []byte) (uint64, bool) {
	var v uint64
	for i, c := range b {
		if i == 10 {
			return 0, false
		}
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			return v, true
		}
	}
	return 0, false
}

// updateBolt changes a database of the tree in one transaction and, so that
// what was deleted is not left in its free pages, copies it into a new file
// that takes its place. False: there is none. A damaged database is an error,
// whatever bolt makes of it.
func (c *cleaner) updateBolt(db string, change func(*bolt.Tx) error) (found bool, err error) {
	at, err := c.t.Resolve(db, true)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return false, err
	}
	info, err := c.t.Lstat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxDatabase {
		return true, fmt.Errorf("/%s: %w", at, tree.ErrNotRegular)
	}
	// bolt maps the file and follows its pages: a fault in there must be an
	// error here, not the end of the process.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("/%s is damaged: %v", at, p)
		}
	}()
	if err := c.copyBolt(at, info.Mode().Perm(), change); err != nil {
		return true, fmt.Errorf("/%s: %w", at, err)
	}
	return true, nil
}

func (c *cleaner) copyBolt(at string, perm fs.FileMode, change func(*bolt.Tx) error) error {
	in := func(name string, flag int, _ fs.FileMode) (*os.File, error) {
		f, _, err := c.t.OpenRegular(name, flag&^os.O_CREATE)
		return f, err
	}
	fresh := func(name string, _ int, perm fs.FileMode) (*os.File, error) {
		return c.t.Root().OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, perm)
	}
	old, err := bolt.Open(at, perm, &bolt.Options{Timeout: boltWait, OpenFile: in})
	if err != nil {
		if errors.Is(err, bolterrors.ErrTimeout) {
			return errors.New("another process has it open; is containerd running on this tree?")
		}
		return err
	}
	if err := old.Update(change); err != nil {
		return errors.Join(err, old.Close())
	}
	tmp := path.Join(path.Dir(at), "."+path.Base(at)+".ortet")
	if _, err := c.t.Remove(tmp); err != nil {
		return errors.Join(err, old.Close())
	}
	dst, err := bolt.Open(tmp, perm, &bolt.Options{Timeout: boltWait, OpenFile: fresh})
	if err != nil {
		return errors.Join(err, old.Close())
	}
	const txMax = 1 << 20
	err = errors.Join(bolt.Compact(dst, old, txMax), dst.Close(), old.Close())
	if err == nil {
		err = c.t.ZeroFrom(at, 0)
	}
	if err == nil {
		err = c.t.Root().Rename(tmp, at)
	}
	if err != nil {
		_, rmErr := c.t.Remove(tmp)
		return errors.Join(err, rmErr)
	}
	return nil
}
